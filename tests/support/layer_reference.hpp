#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <span>
#include <vector>

#include "lora/kernel/activation.hpp"
#include "lora/kernel/attention.hpp"
#include "support/matrix.hpp"

/// The layers of a transformer as plain loops over double precision, element by element. Numbers are complex, so that
/// any derivative can be had by a complex step; values are the real parts.
namespace lora::test::reference {

using Number = std::complex<double>;

struct Matrix {
  Index rows = 0, cols = 0;
  std::vector<Number> values{};

  Matrix() = default;
  Matrix(Index r, Index c) : rows(r), cols(c), values(static_cast<std::size_t>(r * c)) {}
  bool empty() const { return values.empty(); }
  Number& at(Index i, Index j) { return values[static_cast<std::size_t>(i * cols + j)]; }
  Number at(Index i, Index j) const { return values[static_cast<std::size_t>(i * cols + j)]; }

  /// As T, row by row.
  template <class T>
  std::vector<T> as() const {
    std::vector<T> result;
    for (const Number& value : values) result.push_back(rounded<T>(value.real()));
    return result;
  }
};

/// Numbers that float32 holds, in [low, high).
inline Matrix random_matrix(Index rows, Index cols, std::uint64_t key, double low = -1, double high = 1) {
  Matrix result(rows, cols);
  const auto values = random_values<float>(rows * cols, key, low, high);
  std::transform(values.begin(), values.end(), result.values.begin(), [](float value) { return Number(value); });
  return result;
}

inline Matrix operator+(Matrix a, const Matrix& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

inline Matrix transposed(const Matrix& x) {
  Matrix result(x.cols, x.rows);
  for (Index i = 0; i < x.rows; ++i)
    for (Index j = 0; j < x.cols; ++j) result.at(j, i) = x.at(i, j);
  return result;
}

/// Σ a ∘ b
inline Number dot(const Matrix& a, const Matrix& b) {
  Number sum = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) sum += a.values[i] * b.values[i];
  return sum;
}

/// a bᵀ
inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result(a.rows, b.rows);
  for (Index i = 0; i < a.rows; ++i)
    for (Index j = 0; j < b.rows; ++j)
      for (Index k = 0; k < a.cols; ++k) result.at(i, j) += a.at(i, k) * b.at(j, k);
  return result;
}

/// y = x Wᵀ + bias + s (x Aᵀ) Bᵀ
struct Linear {
  Matrix w, bias, a, b;
  double scale = 1;
};

inline Matrix linear(const Matrix& x, const Linear& l) {
  Matrix y = product(x, l.w);
  if (!l.bias.empty())
    for (Index i = 0; i < y.rows; ++i)
      for (Index j = 0; j < y.cols; ++j) y.at(i, j) += l.bias.at(0, j);
  if (l.a.empty()) return y;
  Matrix update = product(product(x, l.a), l.b);
  for (Number& value : update.values) value *= l.scale;
  return y + update;
}

/// Of each group of as many columns as the weight has.
inline Matrix rms_norm(const Matrix& x, const Matrix& weight, double eps) {
  Matrix y(x.rows, x.cols);
  for (Index i = 0; i < x.rows; ++i)
    for (Index first = 0; first < x.cols; first += weight.cols) {
      Number squares = 0;
      for (Index j = 0; j < weight.cols; ++j) squares += x.at(i, first + j) * x.at(i, first + j);
      const Number rstd = 1.0 / std::sqrt(squares / static_cast<double>(weight.cols) + eps);
      for (Index j = 0; j < weight.cols; ++j) y.at(i, first + j) = x.at(i, first + j) * rstd * weight.at(0, j);
    }
  return y;
}

/// g(gate) ∘ up
inline Matrix gated_unit(kernel::Gate function, const Matrix& gate, const Matrix& up) {
  Matrix y = gate;
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const Number z = gate.values[i];
    const Number g = function == kernel::Gate::silu
                         ? z / (1.0 + std::exp(-z))
                         : 0.5 * z * (1.0 + std::tanh(std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
    y.values[i] = g * up.values[i];
  }
  return y;
}

/// Pairs (j, j + C/2) of each head turn by position · theta^(−2j/C).
inline Matrix rotated(const Matrix& x, Index width, std::span<const std::int32_t> positions, double theta) {
  Matrix y = x;
  const Index half = width / 2;
  for (Index i = 0; i < x.rows; ++i)
    for (Index first = 0; first < x.cols; first += width)
      for (Index j = 0; j < half; ++j) {
        // Models hold frequencies in float32.
        const auto frequency =
            static_cast<float>(std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(width)));
        const double angle = positions[static_cast<std::size_t>(i)] * static_cast<double>(frequency);
        const Number a = x.at(i, first + j), b = x.at(i, first + half + j);
        y.at(i, first + j) = a * std::cos(angle) - b * std::sin(angle);
        y.at(i, first + half + j) = b * std::cos(angle) + a * std::sin(angle);
      }
  return y;
}

/// Causal, within each segment and the shape's window, of scores behind its cap.
inline Matrix attention(const kernel::AttentionShape& s, const Matrix& q, const Matrix& k, const Matrix& v,
                        std::span<const kernel::Segment> segments) {
  Matrix out(q.rows, q.cols);
  for (const kernel::Segment& segment : segments)
    for (Index i = segment.begin; i < segment.end; ++i)
      for (Index head = 0; head < s.heads; ++head) {
        const Index from = head * s.width, other = head / (s.heads / s.kv_heads) * s.width;
        std::vector<Number> weights;
        Number sum = 0;
        const Index first = s.window == 0 ? segment.begin : std::max(segment.begin, i - s.window + 1);
        for (Index j = first; j <= i; ++j) {
          Number score = 0;
          for (Index c = 0; c < s.width; ++c) score += q.at(i, from + c) * k.at(j, other + c);
          score = s.cap > 0 ? s.cap * std::tanh(s.scale / s.cap * score) : s.scale * score;
          weights.push_back(std::exp(score));
          sum += weights.back();
        }
        for (Index j = first; j <= i; ++j)
          for (Index c = 0; c < s.width; ++c)
            out.at(i, from + c) += weights[static_cast<std::size_t>(j - first)] / sum * v.at(j, other + c);
      }
  return out;
}

}  // namespace lora::test::reference
