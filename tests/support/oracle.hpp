#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "lora/kernel/attention.hpp"
#include "lora/kernel/gemm.hpp"

/// Kernels as naive loops over doubles, and how far rounding may take a kernel away from them. Inner loops go over
/// pointers: tests are compiled without optimization, where each call costs more than a product.
namespace lora::test::oracle {

/// Values and the bounds of their errors.
struct Bounded {
  std::vector<double> value;
  std::vector<double> bound;
  explicit Bounded(Index count) : value(static_cast<std::size_t>(count)), bound(static_cast<std::size_t>(count)) {}
};

inline double at(const std::vector<double>& x, Index i) { return x[static_cast<std::size_t>(i)]; }
inline double& at(std::vector<double>& x, Index i) { return x[static_cast<std::size_t>(i)]; }

/// c + alpha · op(a) op(b) for contiguous operands; an empty c counts as zeros. Sums of K terms formed with roundoff
/// `u` are off by at most (K + 3) u Σ|a||b|; the result is then rounded once with `u_out`.
inline Bounded gemm(kernel::Form form, Index m, Index n, Index k, const std::vector<double>& a,
                    const std::vector<double>& b, double alpha, const std::vector<double>& c, double u, double u_out) {
  Bounded result(m * n);
  const bool a_turned = form == kernel::Form::tn, b_turned = form == kernel::Form::nt;
  const Index a_step = a_turned ? m : 1, b_step = b_turned ? 1 : n;
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j) {
      const double *const left = a.data(), *const right = b.data();
      const Index a_begin = a_turned ? i : i * k, b_begin = b_turned ? j * k : j;
      double sum = 0, size = 0;
      for (Index p = 0; p < k; ++p) {
        const double term = left[a_begin + p * a_step] * right[b_begin + p * b_step];
        sum += term;
        size += term < 0 ? -term : term;
      }
      const double before = c.empty() ? 0 : at(c, i * n + j);
      at(result.value, i * n + j) = before + alpha * sum;
      at(result.bound, i * n + j) = static_cast<double>(k + 3) * u * std::fabs(alpha) * size +
                                    2 * (u + u_out) * (std::fabs(before) + std::fabs(alpha * sum));
    }
  return result;
}

/// Attention and its gradients. `u` is the roundoff of sums, `u_t` that of stored values and of probabilities.
class Attention {
 public:
  using Segments = std::span<const kernel::Segment>;

  Attention(const kernel::AttentionShape& shape, Index rows, Index key_rows, const std::vector<double>& q,
            const std::vector<double>& k, const std::vector<double>& v, Segments queries, Segments keys, double u,
            double u_t)
      : out(rows * shape.heads * shape.width),
        dq(rows * shape.heads * shape.width),
        dk(key_rows * shape.kv_heads * shape.width),
        dv(key_rows * shape.kv_heads * shape.width),
        s_(shape),
        q_(q),
        k_(k),
        v_(v),
        queries_(queries),
        keys_(keys),
        u_(u),
        u_t_(u_t) {
    each_row([&](Index i, Index h, const Index* seen, Index count) {
      const Row row = probabilities(i, h, seen, count);
      const double* const p = row.p.data();
      const Index key_step = s_.kv_heads * s_.width;
      for (Index c = 0; c < s_.width; ++c) {
        const double* const values = v_.data() + key_at(0, h, c);
        double sum = 0, size = 0;
        for (Index j = 0; j < count; ++j) {
          const double term = p[j] * values[seen[j] * key_step];
          sum += term;
          size += term < 0 ? -term : term;
        }
        at(out.value, query_at(i, h, c)) = sum;
        at(out.bound, query_at(i, h, c)) =
            size * (row.error + 2 * u_t_ + static_cast<double>(count) * u_) + u_t_ * size;
      }
    });
  }

  /// Fills dq, dk, dv from the gradient of out, where the kernel read its own out, off by no more than out.bound.
  void backward(const std::vector<double>& dout) {
    const double depth = static_cast<double>(s_.width + 3);
    each_row([&](Index i, Index h, const Index* seen, Index count) {
      const Row row = probabilities(i, h, seen, count);
      double delta = 0, delta_error = 0;
      for (Index c = 0; c < s_.width; ++c) {
        const double g = at(dout, query_at(i, h, c));
        delta += g * at(out.value, query_at(i, h, c));
        delta_error += std::fabs(g) *
                       (at(out.bound, query_at(i, h, c)) + depth * u_ * std::fabs(at(out.value, query_at(i, h, c))));
      }
      for (Index j = 0; j < count; ++j) {
        const Index to_q = query_at(i, h, 0), to_k = key_at(seen[j], h, 0);
        const double* const g = dout.data() + to_q;
        const double* const value = v_.data() + to_k;
        double dp = 0, dp_size = 0;
        for (Index c = 0; c < s_.width; ++c) {
          const double term = g[c] * value[c];
          dp += term;
          dp_size += term < 0 ? -term : term;
        }
        const double p = at(row.p, j), slope = at(row.slopes, j), ds = s_.scale * p * (dp - delta) * slope;
        const double ds_error = std::fabs(s_.scale) * p *
                                    (slope * (depth * u_ * dp_size + delta_error +
                                              (row.error + 4 * u_) * (std::fabs(dp) + std::fabs(delta))) +
                                     row.slope_error * std::fabs(dp - delta)) +
                                u_t_ * std::fabs(ds);
        // Sums over rows and heads of one key: no more than all rows.
        const double terms = static_cast<double>(q_.size()) / static_cast<double>(s_.width) * u_;
        const double* const key = k_.data() + to_k;
        const double* const query = q_.data() + to_q;
        add(dq, to_q, key, ds, ds_error + terms * std::fabs(ds));
        add(dk, to_k, query, ds, ds_error + terms * std::fabs(ds));
        add(dv, to_k, g, p, p * (row.error + u_t_ + terms));
      }
    });
    for (Bounded* gradient : {&dq, &dk, &dv})
      for (std::size_t i = 0; i < gradient->value.size(); ++i)
        gradient->bound[i] += 2 * u_t_ * std::fabs(gradient->value[i]) + 1e-300;
  }

  Bounded out, dq, dk, dv;

 private:
  struct Row {
    std::vector<double> p, slopes{};  ///< of the cap: 1 without one
    double error = 0;                 ///< relative, of each p
    double slope_error = 0;           ///< of each slope
  };

  Index query_at(Index row, Index head, Index c) const { return (row * s_.heads + head) * s_.width + c; }
  Index key_at(Index row, Index head, Index c) const {
    return (row * s_.kv_heads + head / (s_.heads / s_.kv_heads)) * s_.width + c;
  }
  /// `factor` times a vector of a head, whose elements are off by `error` times their size, to that at `place`.
  void add(Bounded& to, Index place, const double* vector, double factor, double error) const {
    double* const value = to.value.data() + place;
    double* const bound = to.bound.data() + place;
    for (Index c = 0; c < s_.width; ++c) {
      value[c] += factor * vector[c];
      bound[c] += error * (vector[c] < 0 ? -vector[c] : vector[c]);
    }
  }

  /// body(row of q, head, the rows of k that it sees, how many)
  template <class Body>
  void each_row(const Body& body) const {
    for (std::size_t b = 0; b < queries_.size(); ++b) {
      std::vector<Index> all;  // of the sequence, backwards
      for (auto part = static_cast<Index>(b); part >= 0; part = keys_[static_cast<std::size_t>(part)].parent)
        for (Index row = keys_[static_cast<std::size_t>(part)].end;
             row-- > keys_[static_cast<std::size_t>(part)].begin;)
          all.push_back(row);
      std::reverse(all.begin(), all.end());
      for (Index i = 0; i < queries_[b].size(); ++i)
        for (Index h = 0; h < s_.heads; ++h) {
          const Index before = std::ssize(all) - queries_[b].size() + i + 1;  // with its own
          const Index count = s_.window > 0 && s_.window < before ? s_.window : before;
          body(queries_[b].begin + i, h, all.data() + before - count, count);
        }
    }
  }

  Row probabilities(Index i, Index h, const Index* seen, Index count) const {
    Row row;
    std::vector<double> scores;
    double top = -INFINITY, error = 0, sum = 0;
    for (Index j = 0; j < count; ++j) {
      const double* const query = q_.data() + query_at(i, h, 0);
      const double* const key = k_.data() + key_at(seen[j], h, 0);
      double score = 0, size = 0;
      for (Index c = 0; c < s_.width; ++c) {
        const double term = query[c] * key[c] * s_.scale;
        score += term;
        size += term < 0 ? -term : term;
      }
      error = std::max(error, static_cast<double>(s_.width + 4) * u_ * size);
      // tanh is within 2 units in the last place, 4 roundings; its argument and the product are rounded as well.
      const double share = s_.cap > 0 ? std::tanh(score / s_.cap) : 0;
      if (s_.cap > 0) score = s_.cap * share;
      row.slopes.push_back(1 - share * share);
      scores.push_back(score);
      top = std::max(top, score);
    }
    if (s_.cap > 0) {
      row.slope_error = 2 * error / s_.cap + 16 * u_;
      error += 8 * u_ * s_.cap;
    }
    for (double& score : scores) {
      score = std::exp(score - top);
      sum += score;
    }
    for (double& score : scores) score /= sum;
    row.p = std::move(scores);
    // Scores and their log-sum are off by `error` each; the exponential, the sum and the quotient add their own.
    row.error = 2 * error + (static_cast<double>(count) + 8 + std::fabs(top)) * u_;
    return row;
  }

  kernel::AttentionShape s_;
  const std::vector<double>&q_, &k_, &v_;
  Segments queries_, keys_;
  double u_, u_t_;
};

}  // namespace lora::test::oracle
