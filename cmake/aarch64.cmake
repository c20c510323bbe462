# Toolchain of the preset aarch64: Debian's cross compiler, tests run under qemu. cmake/fetch_aarch64_sysroot.sh brings
# the libraries.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CXX_FLAGS_INIT -Wno-psabi)  # notes of what GCC 10 changed
# -R: addresses end at 256 GiB. The emulator keeps notes of every page that ever was reserved, 6 MiB for each GiB, and gives
# out new addresses each time: tests that make many devices would run out of memory.
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-R;0x4000000000;-L;/usr/aarch64-linux-gnu")

set(lora_sysroot "${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-sysroot")
if(NOT EXISTS "${lora_sysroot}/complete")
  message(FATAL_ERROR "Call cmake/fetch_aarch64_sysroot.sh first: it fetches the arm64 libraries")
endif()
cmake_path(ABSOLUTE_PATH lora_sysroot NORMALIZE)
set(CMAKE_FIND_ROOT_PATH "${lora_sysroot}" /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
