#pragma once

/// The version of the library; CMake and `lora --version` read it from here.
#define LORA_VERSION "0.1.0"

/// Debug builds check what release builds promise: assertions and the arena's guard bands.
#ifndef LORA_DEBUG
#  ifdef NDEBUG
#    define LORA_DEBUG 0
#  else
#    define LORA_DEBUG 1
#  endif
#endif

/// Stands before a loop whose turns don't depend on each other. Clang finds out by itself: a hint would make it warn of
/// every such loop that has no vector form, as those over double or complex numbers. GCC takes vectors of 32 bytes for
/// most processors that have longer ones, unless a length is named: 16 floats fill 64 bytes.
#if defined(_OPENMP) && !defined(__clang__)
#  define LORA_SIMD _Pragma("omp simd simdlen(16)")
#else
#  define LORA_SIMD
#endif
