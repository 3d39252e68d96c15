# SPDX-License-Identifier: Apache-2.0
# A thin front: everything real is in CMakeLists.txt and scripts/.
#   make install PREFIX=/usr DESTDIR=/tmp/package
.PHONY: all demo test clean install uninstall format wheel wheel-cuda
PREFIX ?= /usr/local
BUILD = build/lib

all:
	@scripts/setup build
	@mkdir -p build
	cmake --preset release -DMOXIE_TESTS=OFF -DCMAKE_INSTALL_PREFIX="$(PREFIX)" -B $(BUILD)
	cmake --build $(BUILD)

demo:
	@scripts/demo

test:
	@scripts/setup test
	@mkdir -p build
	@scripts/check-includes
	@MOXIE_TEST_QUICK=$${MOXIE_TEST_QUICK-1} scripts/test release

install: all
	@scripts/install $(BUILD) "$(PREFIX)" "$(DESTDIR)"

uninstall:
	@scripts/uninstall $(BUILD) "$(PREFIX)" "$(DESTDIR)"

# dist/*.whl and the sdist, for Python; needs pip and PyPI.
wheel:
	@scripts/setup wheel
	@scripts/wheel

# dist/cuda/*.whl, with libmoxie_cuda; needs nvcc and many minutes.
wheel-cuda:
	@scripts/setup wheel
	@scripts/wheel --cuda

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

clean:
	rm -rf build demo dist
