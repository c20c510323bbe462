#pragma once

#include <complex>
#include <span>
#include <vector>

#include "lora/cpu/kernels.hpp"
#include "support/proof_device.hpp"

/// The CPU's kernels on a proof device: each says which operands it reads and writes, and runs when its turn comes.
namespace lora::proof {

template <class T>
Operand operand(std::string_view name, Use use, const View<Device, T>& view) {
  const auto element = sizeof(T);
  return {name,
          use,
          reinterpret_cast<const std::byte*>(view.data()),
          static_cast<std::size_t>(view.rows()),
          static_cast<std::size_t>(view.cols()) * element,
          static_cast<std::size_t>(view.stride()) * element};
}
inline Operand operand(std::string_view name, Use use, const StoredView<Device>& stored) {
  return {name, use, stored.data(), static_cast<std::size_t>(stored.rows()), stored.row_bytes(), stored.row_bytes()};
}

template <class V>
Operand reads(std::string_view name, const V& view) {
  return operand(name, Use::read, view);
}
template <class V>
Operand writes(std::string_view name, const V& view, bool adds = false) {
  return operand(name, adds ? Use::update : Use::write, view);
}
template <class V>
Operand part(std::string_view name, const V& view) {
  return operand(name, Use::part, view);
}

/// These rows of an operand.
inline Operand rows_of(Operand whole, Use use, Index first, Index count) {
  whole.use = use;
  whole.data += static_cast<std::size_t>(first) * whole.stride;
  whole.rows = static_cast<std::size_t>(count);
  return whole;
}

/// The rows that an index on the device picks: on the worker's thread.
inline std::function<std::vector<Operand>()> picked(const Device& dev, const Operand& whole, Use use,
                                                    const View<Device, const std::int32_t>& index) {
  return [=, own = dev.inner(index)] {
    std::vector<Operand> rows;
    for (Index i = 0; i < own.cols(); ++i) rows.push_back(rows_of(whole, use, own.data()[i], 1));
    return rows;
  };
}

}  // namespace lora::proof

namespace lora::kernel {

/// They have an arena of their own.
template <>
struct Buffers<proof::Device> {
  static BufferSettings settings(proof::Device&) { return {}; }
  template <class T>
  static double most(const BufferSettings&, const PassExtents&) {
    return 0;
  }
};

template <>
struct Gemm<proof::Device> {
  using D = proof::Device;
  template <class T, class Out>
  static void run(D& dev, Form form, View<D, const T> a, View<D, const T> b, View<D, Out> c, double alpha,
                  bool accumulate) {
    dev.launch("gemm", {proof::reads("a", a), proof::reads("b", b), proof::writes("c", c, accumulate)},
               [=, a = dev.inner(a), b = dev.inner(b), c = dev.inner(c)](cpu::Device& cpu) {
                 Gemm<cpu::Device>::run(cpu, form, a, b, c, alpha, accumulate);
               });
  }
  template <class T>
  static void sum(D& dev, ProductTerms<D, T> terms, View<D, const Accum<T>> bias, View<D, T> c, bool accumulate) {
    std::vector<proof::Operand> operands{proof::reads("bias", bias), proof::writes("c", c, accumulate)};
    std::vector<ProductTerm<cpu::Device, T>> own;
    for (const ProductTerm<D, T>& term : terms) {
      operands.push_back(proof::reads("a", term.a));
      operands.push_back(proof::reads("b", term.b));
      own.push_back({term.form, dev.inner(term.a), dev.inner(term.b)});
    }
    dev.launch("sum_of_products", std::move(operands),
               [=, own = std::move(own), bias = dev.inner(bias), c = dev.inner(c)](cpu::Device& cpu) {
                 Gemm<cpu::Device>::sum(cpu, ProductTerms<cpu::Device, T>(own), bias, c, accumulate);
               });
  }
};

template <>
struct RmsNorm<proof::Device> {
  using D = proof::Device;
  template <class T>
  static void run(D& dev, View<D, const T> x, View<D, const Accum<T>> weight, double offset, double eps, View<D, T> y,
                  View<D, Accum<T>> rstd, View<D, T> copy) {
    dev.launch("rms_norm",
               {proof::reads("x", x), proof::reads("weight", weight), proof::writes("y", y),
                proof::writes("rstd", rstd), proof::writes("copy", copy)},
               [=, x = dev.inner(x), weight = dev.inner(weight), y = dev.inner(y), rstd = dev.inner(rstd),
                copy = dev.inner(copy)](cpu::Device& cpu) {
                 RmsNorm<cpu::Device>::run<T>(cpu, x, weight, offset, eps, y, rstd, copy);
               });
  }
  template <class T>
  static void backward(D& dev, View<D, const T> x, View<D, const Accum<T>> weight, double offset,
                       View<D, const Accum<T>> rstd, View<D, const T> dy, View<D, T> dx, bool accumulate, View<D, T> y,
                       double eps) {
    dev.launch("rms_norm_backward",
               {proof::reads("x", x), proof::reads("weight", weight), proof::reads("rstd", rstd),
                proof::reads("dy", dy), proof::writes("dx", dx, accumulate), proof::writes("y", y)},
               [=, x = dev.inner(x), weight = dev.inner(weight), rstd = dev.inner(rstd), dy = dev.inner(dy),
                dx = dev.inner(dx), y = dev.inner(y)](cpu::Device& cpu) {
                 RmsNorm<cpu::Device>::backward<T>(cpu, x, weight, offset, rstd, dy, dx, accumulate, y, eps);
               });
  }
  template <class T>
  static void weight_gradient(D& dev, View<D, const T> x, View<D, const Accum<T>> rstd, View<D, const T> dy,
                              View<D, Accum<T>> dw) {
    dev.launch(
        "rms_norm_weight_gradient",
        {proof::reads("x", x), proof::reads("rstd", rstd), proof::reads("dy", dy), proof::writes("dw", dw, true)},
        [x = dev.inner(x), rstd = dev.inner(rstd), dy = dev.inner(dy), dw = dev.inner(dw)](cpu::Device& cpu) {
          RmsNorm<cpu::Device>::weight_gradient<T>(cpu, x, rstd, dy, dw);
        });
  }
};

template <>
struct Rope<proof::Device> {
  using D = proof::Device;
  template <class T>
  static void run(D& dev, View<D, const T> x, View<D, const Accum<T>> cos, View<D, const Accum<T>> sin,
                  View<D, const std::int32_t> positions, Rotation rotation, View<D, T> y) {
    dev.launch(
        "rope",
        {proof::reads("x", x), proof::reads("cos", cos), proof::reads("sin", sin), proof::reads("positions", positions),
         proof::writes("y", y)},
        [=, x = dev.inner(x), cos = dev.inner(cos), sin = dev.inner(sin), positions = dev.inner(positions),
         y = dev.inner(y)](cpu::Device& cpu) { Rope<cpu::Device>::run<T>(cpu, x, cos, sin, positions, rotation, y); });
  }
};

template <>
struct Attention<proof::Device> {
  using D = proof::Device;
  using Segments = std::vector<Segment>;

  template <class T>
  struct Saved {
    View<D, Accum<T>> lse;  // (N, H)
  };
  static constexpr Index saved_per_head = 1;
  template <class T = float>
  static constexpr bool takes_trees(const AttentionShape&) {
    return true;
  }
  static bool takes_trees(D&, const AttentionShape&) { return true; }
  template <class T>
  static Saved<T> save(D& dev, Index rows, Index heads) {
    return {lora::save<Accum<T>>(dev, rows, heads)};
  }

  template <class T>
  static void run(D& dev, const AttentionShape& shape, View<D, const T> q, View<D, const T> k, View<D, const T> v,
                  std::span<const Segment> queries, std::span<const Segment> keys, View<D, T> out, Saved<T>* saved) {
    const View<D, Accum<T>> lse = saved == nullptr ? View<D, Accum<T>>() : saved->lse;
    const proof::Operand of_q = proof::part("q", q), of_k = proof::part("k", k), of_v = proof::part("v", v),
                         of_out = proof::part("out", out), of_lse = proof::part("lse", lse);
    const Segments q_rows(queries.begin(), queries.end()), k_rows(keys.begin(), keys.end());
    const auto rows = [=] {
      std::vector<proof::Operand> operands;
      add_rows(operands, of_q, proof::Use::read, q_rows);
      add_rows(operands, of_k, proof::Use::read, k_rows);
      add_rows(operands, of_v, proof::Use::read, k_rows);
      add_rows(operands, of_out, proof::Use::write, q_rows);
      add_rows(operands, of_lse, proof::Use::write, q_rows);
      return operands;
    };
    dev.launch(
        "attention", {of_q, of_k, of_v, of_out, of_lse},
        [=, q = dev.inner(q), k = dev.inner(k), v = dev.inner(v), out = dev.inner(out),
         lse = dev.inner(lse)](cpu::Device& cpu) {
          AttentionSaved<cpu::Device, T> own{lse};
          Attention<cpu::Device>::run<T>(cpu, shape, q, k, v, q_rows, k_rows, out, lse.empty() ? nullptr : &own);
        },
        rows);
  }

  template <class T>
  static void backward(D& dev, const AttentionShape& shape, View<D, const T> q, View<D, const T> k, View<D, const T> v,
                       View<D, const T> out, std::span<const Segment> segments, const Saved<T>& saved,
                       View<D, const T> dout, View<D, T> dq, View<D, T> dk, View<D, T> dv) {
    const std::vector<proof::Operand> inputs{proof::part("q", q),       proof::part("k", k),
                                             proof::part("v", v),       proof::part("out", out),
                                             proof::part("dout", dout), proof::part("lse", saved.lse)};
    const std::vector<proof::Operand> results{proof::part("dq", dq), proof::part("dk", dk), proof::part("dv", dv)};
    const Segments own_segments(segments.begin(), segments.end());
    const auto rows = [=] {
      std::vector<proof::Operand> operands;
      for (const auto& input : inputs) add_rows(operands, input, proof::Use::read, own_segments);
      for (const auto& result : results) add_rows(operands, result, proof::Use::write, own_segments);
      return operands;
    };
    std::vector<proof::Operand> all = inputs;
    all.insert(all.end(), results.begin(), results.end());
    dev.launch(
        "attention_backward", std::move(all),
        [=, q = dev.inner(q), k = dev.inner(k), v = dev.inner(v), out = dev.inner(out), lse = dev.inner(saved.lse),
         dout = dev.inner(dout), dq = dev.inner(dq), dk = dev.inner(dk), dv = dev.inner(dv)](cpu::Device& cpu) {
          const AttentionSaved<cpu::Device, T> own{lse};
          Attention<cpu::Device>::backward<T>(cpu, shape, q, k, v, out, own_segments, own, dout, dq, dk, dv);
        },
        rows);
  }

 private:
  static void add_rows(std::vector<proof::Operand>& operands, const proof::Operand& whole, proof::Use use,
                       const Segments& segments) {
    if (whole.empty()) return;
    for (const Segment& s : segments) operands.push_back(proof::rows_of(whole, use, s.begin, s.size()));
  }
};

template <>
struct GatedUnit<proof::Device> {
  using D = proof::Device;
  template <class T>
  static void run(D& dev, Gate gate, View<D, const T> gate_up, View<D, T> y) {
    dev.launch("gated_unit", {proof::reads("gate_up", gate_up), proof::writes("y", y)},
               [gate, gate_up = dev.inner(gate_up), y = dev.inner(y)](cpu::Device& cpu) {
                 GatedUnit<cpu::Device>::run<T>(cpu, gate, gate_up, y);
               });
  }
  template <class T>
  static void backward(D& dev, Gate gate, View<D, const T> gate_up, View<D, const T> dy, View<D, T> d_gate_up,
                       View<D, T> y) {
    dev.launch(
        "gated_unit_backward",
        {proof::reads("gate_up", gate_up), proof::reads("dy", dy), proof::writes("d_gate_up", d_gate_up),
         proof::writes("y", y)},
        [=, gate_up = dev.inner(gate_up), dy = dev.inner(dy), d_gate_up = dev.inner(d_gate_up), y = dev.inner(y)](
            cpu::Device& cpu) { GatedUnit<cpu::Device>::backward<T>(cpu, gate, gate_up, dy, d_gate_up, y); });
  }
};

template <>
struct Embedding<proof::Device> {
  using D = proof::Device;
  template <class T>
  static void run(D& dev, const StoredView<D>& table, View<D, const std::int32_t> tokens, View<D, T> y) {
    const auto whole = proof::part("table", table);
    dev.launch(
        "embedding", {whole, proof::reads("tokens", tokens), proof::writes("y", y)},
        [table = dev.inner(table), tokens = dev.inner(tokens), y = dev.inner(y)](cpu::Device& cpu) {
          Embedding<cpu::Device>::run<T>(cpu, table, tokens, y);
        },
        proof::picked(dev, whole, proof::Use::read, tokens));
  }
  template <class T>
  static void backward(D& dev, View<D, const std::int32_t> tokens, View<D, const T> dy, View<D, Accum<T>> dtable) {
    dev.launch("embedding_backward",
               {proof::reads("tokens", tokens), proof::reads("dy", dy), proof::writes("dtable", dtable, true)},
               [tokens = dev.inner(tokens), dy = dev.inner(dy), dtable = dev.inner(dtable)](cpu::Device& cpu) {
                 Embedding<cpu::Device>::backward<T>(cpu, tokens, dy, dtable);
               });
  }
  template <class T>
  static void noise(D& dev, const EmbeddingNoise& rule, std::span<const Segment> segments,
                    View<D, const std::int32_t> sequence_index, View<D, const std::int32_t> positions, View<D, T> y) {
    dev.launch(
        "embedding_noise",
        {proof::reads("sequence_index", sequence_index), proof::reads("positions", positions),
         proof::writes("y", y, true)},
        [=, parts = std::vector<Segment>(segments.begin(), segments.end()), sequence_index = dev.inner(sequence_index),
         positions = dev.inner(positions), y = dev.inner(y)](cpu::Device& cpu) {
          Embedding<cpu::Device>::noise<T>(cpu, rule, parts, sequence_index, positions, y);
        });
  }
};

template <>
struct SoftCap<proof::Device> {
  using D = proof::Device;
  template <class A>
  static void run(D& dev, View<D, A> x, double cap) {
    dev.launch("soft_cap", {proof::writes("x", x, true)},
               [x = dev.inner(x), cap](cpu::Device& cpu) { SoftCap<cpu::Device>::run(cpu, x, cap); });
  }
};

template <>
struct Softmax<proof::Device> {
  using D = proof::Device;
  template <class T>
  static void block(D& dev, View<D, Accum<T>> logits, View<D, const std::int32_t> labels, Index first,
                    View<D, Accum<T>> top, View<D, Accum<T>> others, View<D, Accum<T>> target, View<D, T> e,
                    View<D, Accum<T>> rounded, View<D, Accum<T>> sums, double cap) {
    const bool goes_on = first > 0;
    std::vector<proof::Operand> operands{
        proof::writes("logits", logits, true),     proof::reads("labels", labels), proof::writes("top", top, goes_on),
        proof::writes("others", others, goes_on),  proof::part("target", target),  proof::writes("e", e),
        proof::writes("rounded", rounded, goes_on)};
    if (goes_on) operands.push_back(proof::writes("sums", sums, true));
    // Only the targets of labels in this block are written.
    const auto here = [=, columns = logits.cols(), own = dev.inner(labels)] {
      std::vector<proof::Operand> targets;
      for (Index i = 0; i < own.cols(); ++i)
        if (own.data()[i] >= first && own.data()[i] < first + columns)
          targets.push_back(proof::writes("target", target.col_slice(i, 1)));
      return targets;
    };
    dev.launch(
        "softmax_block", std::move(operands),
        [=, logits = dev.inner(logits), labels = dev.inner(labels), top = dev.inner(top), others = dev.inner(others),
         target = dev.inner(target), e = dev.inner(e), rounded = dev.inner(rounded),
         sums = dev.inner(sums)](cpu::Device& cpu) {
          Softmax<cpu::Device>::block<T>(cpu, logits, labels, first, top, others, target, e, rounded, sums, cap);
        },
        here);
  }
  template <class A>
  static void finish(D& dev, View<D, const A> top, View<D, const A> others, View<D, const A> target, View<D, A> loss) {
    dev.launch("softmax_finish",
               {proof::reads("top", top), proof::reads("others", others), proof::reads("target", target),
                proof::writes("loss", loss)},
               [top = dev.inner(top), others = dev.inner(others), target = dev.inner(target), loss = dev.inner(loss)](
                   cpu::Device& cpu) { Softmax<cpu::Device>::finish<A>(cpu, top, others, target, loss); });
  }
  template <class T>
  static void gradient(D& dev, View<D, const Accum<T>> top, View<D, const Accum<T>> others,
                       View<D, const Accum<T>> target, View<D, const Accum<T>> rounded, View<D, const T> w_label,
                       double scale, View<D, const Accum<T>> sums, View<D, T> dx, double cap) {
    dev.launch(
        "softmax_gradient",
        {proof::reads("top", top), proof::reads("others", others), proof::reads("target", target),
         proof::reads("rounded", rounded), proof::reads("w_label", w_label), proof::reads("sums", sums),
         proof::writes("dx", dx)},
        [=, top = dev.inner(top), others = dev.inner(others), target = dev.inner(target), rounded = dev.inner(rounded),
         w_label = dev.inner(w_label), sums = dev.inner(sums), dx = dev.inner(dx)](cpu::Device& cpu) {
          Softmax<cpu::Device>::gradient<T>(cpu, top, others, target, rounded, w_label, scale, sums, dx, cap);
        });
  }
  template <class T>
  static void logit_gradient(D& dev, View<D, const Accum<T>> logits, View<D, const std::int32_t> labels, Index first,
                             View<D, const Accum<T>> top, View<D, const Accum<T>> others,
                             View<D, const Accum<T>> target, double scale, View<D, T> dl, double cap) {
    dev.launch("softmax_logit_gradient",
               {proof::reads("logits", logits), proof::reads("labels", labels), proof::reads("top", top),
                proof::reads("others", others), proof::reads("target", target), proof::writes("dl", dl)},
               [=, logits = dev.inner(logits), labels = dev.inner(labels), top = dev.inner(top),
                others = dev.inner(others), target = dev.inner(target), dl = dev.inner(dl)](cpu::Device& cpu) {
                 Softmax<cpu::Device>::logit_gradient<T>(cpu, logits, labels, first, top, others, target, scale, dl,
                                                         cap);
               });
  }
};

template <>
struct AdamW<proof::Device> {
  using D = proof::Device;
  template <class A>
  static void run(D& dev, const AdamWStep& step, View<D, const A> grad, View<D, A> value, View<D, A> m, View<D, A> v) {
    dev.launch("adamw",
               {proof::reads("grad", grad), proof::writes("value", value, true), proof::writes("m", m, true),
                proof::writes("v", v, true)},
               [=, grad = dev.inner(grad), value = dev.inner(value), m = dev.inner(m),
                v = dev.inner(v)](cpu::Device& cpu) { AdamW<cpu::Device>::run<A>(cpu, step, grad, value, m, v); });
  }
};

template <>
struct Elementwise<proof::Device> {
  using D = proof::Device;
  template <class T>
  static void fill(D& dev, View<D, T> y, double value) {
    dev.launch("fill", {proof::writes("y", y)},
               [=, y = dev.inner(y)](cpu::Device& cpu) { Elementwise<cpu::Device>::fill(cpu, y, value); });
  }
  template <class From, class To>
  static void convert(D& dev, View<D, const From> x, View<D, To> y, double scale, bool accumulate) {
    dev.launch("convert", {proof::reads("x", x), proof::writes("y", y, accumulate)},
               [=, x = dev.inner(x), y = dev.inner(y)](cpu::Device& cpu) {
                 Elementwise<cpu::Device>::convert(cpu, x, y, scale, accumulate);
               });
  }
  template <class T>
  static void add_bias(D& dev, View<D, const Accum<T>> bias, View<D, T> y) {
    dev.launch("add_bias", {proof::reads("bias", bias), proof::writes("y", y, true)},
               [bias = dev.inner(bias), y = dev.inner(y)](cpu::Device& cpu) {
                 Elementwise<cpu::Device>::add_bias<T>(cpu, bias, y);
               });
  }
  template <class T>
  static void gather_rows(D& dev, View<D, const T> x, View<D, const std::int32_t> index, View<D, T> y) {
    const auto whole = proof::part("x", x);
    dev.launch(
        "gather_rows", {whole, proof::reads("index", index), proof::writes("y", y)},
        [x = dev.inner(x), index = dev.inner(index), y = dev.inner(y)](cpu::Device& cpu) {
          Elementwise<cpu::Device>::gather_rows<T>(cpu, x, index, y);
        },
        proof::picked(dev, whole, proof::Use::read, index));
  }
  template <class T>
  static void scatter_rows(D& dev, View<D, const T> x, View<D, const std::int32_t> index, View<D, T> y) {
    const auto whole = proof::part("y", y);
    dev.launch(
        "scatter_rows", {proof::reads("x", x), proof::reads("index", index), whole},
        [x = dev.inner(x), index = dev.inner(index), y = dev.inner(y)](cpu::Device& cpu) {
          Elementwise<cpu::Device>::scatter_rows<T>(cpu, x, index, y);
        },
        proof::picked(dev, whole, proof::Use::write, index));
  }
  static View<D, const std::uint8_t> draw_dropout(D&, const Dropout&, View<D, const std::int32_t>,
                                                  View<D, const std::int32_t>, Index, bool) {
    return {};  // as the CPU's
  }
  template <class T>
  static constexpr DropoutBytes dropout_bytes() {
    return {};
  }
  template <class T>
  static void dropout(D& dev, const DropoutMask<D>& mask, View<D, const T> x, View<D, T> y, bool accumulate) {
    const DropoutMask<cpu::Device> inner{mask.rule, dev.inner(mask.sequence_index), dev.inner(mask.positions)};
    dev.launch("dropout",
               {proof::reads("x", x), proof::reads("sequence_index", mask.sequence_index),
                proof::reads("positions", mask.positions), proof::writes("y", y, accumulate)},
               [=, x = dev.inner(x), y = dev.inner(y)](cpu::Device& cpu) {
                 Elementwise<cpu::Device>::dropout<T>(cpu, inner, x, y, accumulate);
               });
  }
};

template <>
struct Reduce<proof::Device> {
  using D = proof::Device;
  template <class T>
  static void column_sums(D& dev, View<D, const T> x, View<D, Accum<T>> out) {
    dev.launch("column_sums", {proof::reads("x", x), proof::writes("out", out, true)},
               [x = dev.inner(x), out = dev.inner(out)](cpu::Device& cpu) {
                 Reduce<cpu::Device>::column_sums<T>(cpu, x, out);
               });
  }
  template <class T>
  static void block_sums_of_squares(D& dev, View<D, const T> x, View<D, double> out) {
    dev.launch("block_sums_of_squares", {proof::reads("x", x), proof::writes("out", out)},
               [x = dev.inner(x), out = dev.inner(out)](cpu::Device& cpu) {
                 Reduce<cpu::Device>::block_sums_of_squares<T>(cpu, x, out);
               });
  }
  template <class T>
  static void sum(D& dev, View<D, const T> x, View<D, double> out) {
    dev.launch(
        "sum", {proof::reads("x", x), proof::writes("out", out, true)},
        [x = dev.inner(x), out = dev.inner(out)](cpu::Device& cpu) { Reduce<cpu::Device>::sum<T>(cpu, x, out); });
  }
};

template <>
struct Quantize<proof::Device> {
  using D = proof::Device;
  template <class T>
  static void decode(D& dev, const StoredView<D>& w, View<D, T> y) {
    dev.launch("decode", {proof::reads("w", w), proof::writes("y", y)},
               [w = dev.inner(w), y = dev.inner(y)](cpu::Device& cpu) { Quantize<cpu::Device>::decode<T>(cpu, w, y); });
  }
  template <class A>
  static void decode_with_update(D& dev, const StoredView<D>& w, View<D, const A> b, View<D, const A> a, View<D, A> y) {
    dev.launch("decode_with_update",
               {proof::reads("w", w), proof::reads("b", b), proof::reads("a", a), proof::writes("y", y)},
               [w = dev.inner(w), b = dev.inner(b), a = dev.inner(a), y = dev.inner(y)](cpu::Device& cpu) {
                 Quantize<cpu::Device>::decode_with_update<A>(cpu, w, b, a, y);
               });
  }
};

template <>
struct LowRank<proof::Device> {
  using D = proof::Device;

  template <class T>
  static void backward(D& dev, View<D, const T> h, LowRankTerms<D, T> terms, View<D, T> dh) {
    std::vector<proof::Operand> operands{proof::reads("h", h), proof::writes("dh", dh)};
    dev.launch("low_rank_backward", with_terms<T>(std::move(operands), terms),
               [h = dev.inner(h), terms = inner<T>(dev, terms), dh = dev.inner(dh)](cpu::Device& cpu) {
                 LowRank<cpu::Device>::backward<T>(cpu, h, terms, dh);
               });
  }
  template <class T>
  static void gradients(D& dev, View<D, const T> x, View<D, const T> a, View<D, Accum<T>> da,
                        LowRankTerms<D, T> terms) {
    std::vector<proof::Operand> operands{proof::reads("x", x), proof::reads("a", a), proof::writes("da", da, true)};
    dev.launch("low_rank_gradients", with_terms<T>(std::move(operands), terms),
               [x = dev.inner(x), a = dev.inner(a), da = dev.inner(da), terms = inner<T>(dev, terms)](
                   cpu::Device& cpu) { LowRank<cpu::Device>::gradients<T>(cpu, x, a, da, terms); });
  }

 private:
  template <class T>
  static std::vector<proof::Operand> with_terms(std::vector<proof::Operand> operands, LowRankTerms<D, T> terms) {
    for (const LowRankTerm<D, T>& term : terms) {
      operands.push_back(proof::reads("dy", term.dy));
      operands.push_back(proof::reads("b", term.b));
      operands.push_back(proof::writes("db", term.db, true));
    }
    return operands;
  }
  template <class T>
  static std::vector<LowRankTerm<cpu::Device, T>> inner(D& dev, LowRankTerms<D, T> terms) {
    std::vector<LowRankTerm<cpu::Device, T>> own;
    for (const LowRankTerm<D, T>& term : terms)
      own.push_back({dev.inner(term.dy), dev.inner(term.b), dev.inner(term.db), term.scale});
    return own;
  }
};

static_assert(Complete<proof::Device, float>);
static_assert(Complete<proof::Device, bf16>);
static_assert(Complete<proof::Device, double>);

}  // namespace lora::kernel

/// What tests compute with on the proof device, and the kernels in which gradients are checked. ONCE as in
/// lora/kernel/instantiate.hpp; compiled once for all tests (tests/support/compiled).
#define LORA_TEST_KERNELS(ONCE)                                          \
  LORA_KERNELS(ONCE, lora::cpu::Device, double)                          \
  LORA_KERNELS(ONCE, lora::cpu::Device, std::complex<double>)            \
  LORA_KERNELS_OF_SUMS(ONCE, lora::cpu::Device, double)                  \
  LORA_KERNELS_OF_SOFTMAX(ONCE, lora::cpu::Device, double)               \
  LORA_KERNELS_OF_SOFTMAX(ONCE, lora::cpu::Device, std::complex<double>) \
  LORA_KERNELS(ONCE, lora::proof::Device, float)                         \
  LORA_KERNELS(ONCE, lora::proof::Device, lora::bf16)                    \
  LORA_KERNELS_OF_HALVES(ONCE, lora::proof::Device, lora::bf16)          \
  LORA_KERNELS_OF_SUMS(ONCE, lora::proof::Device, float)                 \
  LORA_KERNELS_OF_SOFTMAX(ONCE, lora::proof::Device, float)              \
  LORA_KERNELS_OF_SOFTMAX(ONCE, lora::proof::Device, lora::bf16)

#ifdef LORA_COMPILED
LORA_TEST_KERNELS(extern template)
#endif
