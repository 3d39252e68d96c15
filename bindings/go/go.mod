module moxie/bindings/go

go 1.19
