#pragma once

#include <cstdio>
#include <cstdlib>

#include "lora/core/config.hpp"

/// A promise of the library to itself, checked in debug builds only. Mistakes of a caller or of a file are errors,
/// never assertions.
#if LORA_DEBUG
#  define LORA_ASSERT(condition)                                                               \
    do {                                                                                       \
      if (!(condition)) {                                                                      \
        std::fprintf(stderr, "%s:%d: assertion failed: %s\n", __FILE__, __LINE__, #condition); \
        std::abort();                                                                          \
      }                                                                                        \
    } while (false)
#else
#  define LORA_ASSERT(condition) ((void)0)
#endif
