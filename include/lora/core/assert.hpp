#pragma once

#include <cstdio>
#include <cstdlib>

#include "lora/core/config.hpp"

/// An internal invariant, checked in debug builds only. A caller's mistake or a bad file is an error, never an
/// assertion.
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
