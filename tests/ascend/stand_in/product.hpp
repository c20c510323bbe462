/// Sums of products, for the operators that have many of them.
#pragma once

#include <cstdint>

namespace stand_in {

/// c[m, n] += a[m, k] · b[k, n], all contiguous, summed in double.
void add_product(const float* a, const float* b, double* c, std::int64_t m, std::int64_t k, std::int64_t n);
void add_product(const double* a, const double* b, double* c, std::int64_t m, std::int64_t k, std::int64_t n);

}  // namespace stand_in
