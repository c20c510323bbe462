#include "product.hpp"

#include <algorithm>
#include <vector>

// Where the compiler can, it makes a version for wider registers as well and chooses when the program runs.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#  define STAND_IN_WIDE __attribute__((target_clones("avx2", "default")))
#else
#  define STAND_IN_WIDE
#endif

namespace stand_in {

namespace {

constexpr std::int64_t kWidth = 64;   // columns of a block: its sums stay in registers and the nearest cache
constexpr std::int64_t kDepth = 256;  // rows of b in a block

/// sums[0 .. kWidth) += Σ a[p] · block[p, 0 .. kWidth)
STAND_IN_WIDE
void add_rows(const double* __restrict a, const double* __restrict block, double* __restrict sums, std::int64_t depth) {
  std::int64_t p = 0;
  for (; p + 4 <= depth; p += 4) {
    const double a0 = a[p], a1 = a[p + 1], a2 = a[p + 2], a3 = a[p + 3];
    const double* __restrict b = block + p * kWidth;
    for (std::int64_t j = 0; j < kWidth; ++j)
      sums[j] += (a0 * b[j] + a1 * b[kWidth + j]) + (a2 * b[2 * kWidth + j] + a3 * b[3 * kWidth + j]);
  }
  for (; p < depth; ++p)
    for (std::int64_t j = 0; j < kWidth; ++j) sums[j] += a[p] * block[p * kWidth + j];
}

template <class T>
void add(const T* a, const T* b, double* c, std::int64_t m, std::int64_t k, std::int64_t n) {
  std::vector<double> block(static_cast<std::size_t>(kDepth * kWidth)), row(static_cast<std::size_t>(kDepth));
  double sums[kWidth];
  for (std::int64_t first = 0; first < k; first += kDepth) {
    const std::int64_t depth = std::min(kDepth, k - first);
    for (std::int64_t left = 0; left < n; left += kWidth) {
      const std::int64_t width = std::min(kWidth, n - left);
      for (std::int64_t p = 0; p < depth; ++p) {
        double* to = block.data() + p * kWidth;
        const T* from = b + (first + p) * n + left;
        for (std::int64_t j = 0; j < width; ++j) to[j] = static_cast<double>(from[j]);
        std::fill(to + width, to + kWidth, 0.0);
      }
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t p = 0; p < depth; ++p)
          row[static_cast<std::size_t>(p)] = static_cast<double>(a[i * k + first + p]);
        std::fill(sums, sums + kWidth, 0.0);
        add_rows(row.data(), block.data(), sums, depth);
        double* to = c + i * n + left;
        for (std::int64_t j = 0; j < width; ++j) to[j] += sums[j];
      }
    }
  }
}

}  // namespace

void add_product(const float* a, const float* b, double* c, std::int64_t m, std::int64_t k, std::int64_t n) {
  add(a, b, c, m, k, n);
}
void add_product(const double* a, const double* b, double* c, std::int64_t m, std::int64_t k, std::int64_t n) {
  add(a, b, c, m, k, n);
}

}  // namespace stand_in
