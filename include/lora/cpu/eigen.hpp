#pragma once

// The only place that includes Eigen. GCC 12 warns about its own vector intrinsics once they are inlined into Eigen's
// code (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <Eigen/Core>
#if defined(__GNUC__) && !defined(__clang__)
#  pragma GCC diagnostic pop
#endif
