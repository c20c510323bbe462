#pragma once

/// The version of the library; CMake and `lora --version` read it from here.
#define LORA_VERSION "0.2.0"

/// Debug builds check assertions and the arena's guard bands.
#ifndef LORA_DEBUG
#  ifdef NDEBUG
#    define LORA_DEBUG 0
#  else
#    define LORA_DEBUG 1
#  endif
#endif

/// Precedes a loop whose iterations are independent. Clang vectorizes without a hint, and with one warns about every
/// loop that it can't vectorize, such as those over double or complex numbers. GCC uses 32-byte vectors on most
/// processors with longer ones unless a length is given: 16 floats are 64 bytes.
#if defined(_OPENMP) && !defined(__clang__)
#  define LORA_SIMD _Pragma("omp simd simdlen(16)")
#else
#  define LORA_SIMD
#endif

/// Precedes a loop of a small constant number of iterations, to be written out. Arrays that it numbers may stay in
/// memory: for registers cpu/vectors/lanes.hpp has `unrolled`.
#if defined(__clang__)
#  define LORA_UNROLL _Pragma("unroll")
#else
#  define LORA_UNROLL _Pragma("GCC unroll 16")
#endif

/// Precedes the definitions in *.ipp files: `inline` in header-only use; nothing where they are compiled once
/// (LORA_COMPILED, by the CMake target lora::compiled), in sources of their own.
#ifdef LORA_COMPILED
#  define LORA_INLINE
#else
#  define LORA_INLINE inline
#endif
