# SPDX-License-Identifier: Apache-2.0
# A thin front: everything real is in CMakeLists.txt and scripts/.
.PHONY: all demo test clean install format

all:
	@scripts/setup build
	@mkdir -p build
	cmake --preset release -DMOXIE_TESTS=OFF -B build/lib
	cmake --build build/lib

demo:
	@scripts/demo

test:
	@scripts/setup test
	@mkdir -p build
	@scripts/check-includes
	@MOXIE_TEST_QUICK=$${MOXIE_TEST_QUICK-1} scripts/test release

install: all
	cmake --install build/lib

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

clean:
	rm -rf build demo
