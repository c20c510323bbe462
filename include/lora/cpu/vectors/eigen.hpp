#pragma once

// The only place that includes Eigen and the vector intrinsics. GCC 12 warns about its own intrinsics once they are
// inlined (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#  pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#if defined(__x86_64__) || defined(__i386__)
#  include <immintrin.h>
#endif

#include <Eigen/Core>
#if defined(__GNUC__) && !defined(__clang__)
#  pragma GCC diagnostic pop
#endif
