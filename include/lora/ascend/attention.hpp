#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "lora/ascend/elementwise.hpp"
#include "lora/kernel/attention.hpp"
#include "lora/tensor/staging.hpp"

namespace lora::ascend {

/// The mask that attention's operators want with a causal sparse mode, whatever the lengths are: ones above the
/// diagonal, which are what is not seen.
class CausalMask {
 public:
  static constexpr Index extent = 2048;

  explicit CausalMask(Device& dev) : mask_(dev, extent, extent) {
    std::vector<std::uint8_t> ones(static_cast<std::size_t>(extent * extent));
    for (Index i = 0; i < extent; ++i) std::fill_n(ones.begin() + i * extent + i + 1, extent - i - 1, std::uint8_t{1});
    copy_from_host<Device, std::uint8_t>(dev, ones, mask_.view());
    dev.synchronize();  // the host's mask goes away
  }
  /// As truth values, of the same bytes: others are not taken beside operands of float32 in backward.
  Operand operand() const { return Operand(mask_.view().data(), ACL_BOOL, {extent, extent}, {extent, 1}); }

 private:
  Tensor<Device, std::uint8_t> mask_;
};

/// Sequences end to end that one call of the operator takes, queries and keys.
struct PackedSegments {
  kernel::Segment queries, keys;                       ///< rows of all of them
  std::vector<std::int64_t> query_ends{}, key_ends{};  ///< of each, from the first row on
};

/// Segments without gaps between them share a call, up to the operator's limit.
inline std::vector<PackedSegments> packed(std::span<const kernel::Segment> queries,
                                          std::span<const kernel::Segment> keys) {
  constexpr std::size_t most = 2000;
  std::vector<PackedSegments> packs;
  for (std::size_t b = 0; b < queries.size(); ++b) {
    if (queries[b].size() == 0) continue;
    const bool goes_on = !packs.empty() && packs.back().queries.end == queries[b].begin &&
                         packs.back().keys.end == keys[b].begin && packs.back().query_ends.size() < most;
    if (!goes_on) packs.push_back({{queries[b].begin, queries[b].begin}, {keys[b].begin, keys[b].begin}});
    PackedSegments& pack = packs.back();
    pack.queries.end = queries[b].end;
    pack.keys.end = keys[b].end;
    pack.query_ends.push_back(pack.queries.size());
    pack.key_ends.push_back(pack.keys.size());
  }
  return packs;
}

/// Whether any segment goes on from another.
inline bool has_trees(std::span<const kernel::Segment> segments) {
  return std::any_of(segments.begin(), segments.end(), [](const auto& segment) { return segment.parent >= 0; });
}

/// The rows of the sequences that end with each segment that has queries, one behind another, each with all its parts.
inline std::vector<kernel::Segment> whole_sequences(std::span<const kernel::Segment> segments) {
  std::vector<kernel::Segment> whole;
  Index row = 0;
  for (Index b = 0; b < std::ssize(segments); ++b) {
    const bool asks = segments[static_cast<std::size_t>(b)].size() > 0;
    const Index begin = std::exchange(row, row + (asks ? kernel::sequence_rows(segments, b) : 0));
    whole.push_back({begin, row});
  }
  return whole;
}

/// Calls use(part, place) for the parts with rows of the sequence that ends with segment b: where they begin in those
/// of `whole`.
template <class Use>
void for_each_place(std::span<const kernel::Segment> segments, std::span<const kernel::Segment> whole, std::size_t b,
                    const Use& use) {
  if (whole[b].size() == 0) return;
  kernel::for_each_part(segments, static_cast<Index>(b), [&](Index first, const kernel::Segment& part) {
    if (part.size() > 0) use(part, whole[b].begin + first);
  });
}

}  // namespace lora::ascend

namespace lora::kernel {

/// The vendor's fused attention over packed sequences. It knows no trees: where segments have parents, the keys and
/// values of each sequence are laid out whole, and their gradients added up in float, those of a segment before those
/// of what descends from it.
template <>
struct Attention<ascend::Device> {
  using D = ascend::Device;

  /// The row's largest score and the sum of its exponentials, each eight times, as the operator wants them back.
  template <class T>
  struct Saved {
    View<D, float> top, sum;  // (N, H·8)
  };
  static constexpr Index copies = 8, saved_per_head = 2 * copies;

  template <class T>
  static Saved<T> save(D& dev, Index rows, Index heads) {
    return {lora::save<float>(dev, rows, heads * copies), lora::save<float>(dev, rows, heads * copies)};
  }

  template <class T>
  static void run(D& dev, const AttentionShape& shape, View<D, const T> q, View<D, const T> k, View<D, const T> v,
                  std::span<const Segment> queries, std::span<const Segment> keys, View<D, T> out, Saved<T>* saved) {
    const Arena::Scope whole_scope(dev.arena());
    std::vector<Segment> whole;
    if (ascend::has_trees(keys)) {
      whole = ascend::whole_sequences(keys);
      k = laid_out(dev, k, keys, whole);
      v = laid_out(dev, v, keys, whole);
      keys = whole;
    }
    const ascend::Operand mask = dev.state<ascend::CausalMask>().operand();
    for (const ascend::PackedSegments& pack : ascend::packed(queries, keys)) {
      const Arena::Scope scope(dev.arena());
      const Index n = pack.queries.size();
      const auto rows = [&](auto view) { return view.row_slice(pack.queries.begin, n); };
      const auto key_rows = [&](auto view) {
        return ascend::aligned(dev, view.row_slice(pack.keys.begin, pack.keys.size()));
      };
      const View<D, const T> own_q = ascend::aligned(dev, rows(q)), own_k = key_rows(k), own_v = key_rows(v);
      const bool keeps = saved != nullptr;
      const View<D, float> top = keeps ? rows(saved->top) : scratch<float>(dev, n, shape.heads * copies);
      const View<D, float> sum = keeps ? rows(saved->sum) : scratch<float>(dev, n, shape.heads * copies);
      ascend::write_aligned(dev, rows(out), false, false, [&](View<D, T> place) {
        ascend::launch(dev, dev.toolkit().operators.flash_attention, ascend::heads(own_q, shape.heads),
                       ascend::heads(own_k, shape.kv_heads), ascend::heads(own_v, shape.kv_heads), ascend::no_operand,
                       ascend::no_operand, ascend::no_operand, mask, ascend::no_operand, pack.query_ends, pack.key_ends,
                       shape.scale, keep_all, any_distance, any_distance, std::int64_t{shape.heads}, layout,
                       default_precision, causal, ascend::heads(top, shape.heads), ascend::heads(sum, shape.heads),
                       ascend::empty_operand(ascend::acl_type<T>), ascend::heads(place, shape.heads));
      });
    }
  }

  template <class T>
  static void backward(D& dev, const AttentionShape& shape, View<D, const T> q, View<D, const T> k, View<D, const T> v,
                       View<D, const T> out, std::span<const Segment> segments, const Saved<T>& saved,
                       View<D, const T> dout, View<D, T> dq, View<D, T> dk, View<D, T> dv) {
    const Arena::Scope scope(dev.arena());
    if (!ascend::has_trees(segments))
      return backward_of_whole(dev, shape, q, k, v, out, segments, segments, saved, dout, dq, dk, dv);
    const std::vector<Segment> whole = ascend::whole_sequences(segments);
    const View<D, const T> all_k = laid_out(dev, k, segments, whole), all_v = laid_out(dev, v, segments, whole);
    const auto like = [&](View<D, const T> x) { return scratch<T>(dev, x.rows(), x.cols()); };
    const View<D, T> all_dk = like(all_k), all_dv = like(all_v);
    backward_of_whole(dev, shape, q, all_k, all_v, out, segments, whole, saved, dout, dq, all_dk, all_dv);
    add_up<T>(dev, all_dk, segments, whole, dk);
    add_up<T>(dev, all_dv, segments, whole, dv);
  }

 private:
  /// The rows of every sequence with those that it has in common with others.
  template <class T>
  static View<D, const T> laid_out(D& dev, View<D, const T> x, std::span<const Segment> segments,
                                   std::span<const Segment> whole) {
    const View<D, T> rows = scratch<T>(dev, whole.back().end, x.cols());
    const Arena::Scope scope(dev.arena());
    constexpr Index unit = view_alignment / sizeof(T);
    if (x.stride() % unit != 0) x = ascend::compact(dev, x);  // else rows that begin anywhere can't be read
    for (std::size_t b = 0; b < segments.size(); ++b)
      ascend::for_each_place(segments, whole, b, [&](const Segment& part, Index place) {
        Elementwise<D>::convert(dev, x.row_slice(part.begin, part.size()), rows.row_slice(place, part.size()), 1,
                                false);
      });
    return rows;
  }

  /// The gradients of rows that lie in several sequences: the sums of theirs.
  template <class T>
  static void add_up(D& dev, View<D, const T> all, std::span<const Segment> segments, std::span<const Segment> whole,
                     View<D, T> to) {
    const Arena::Scope scope(dev.arena());
    const View<D, float> sums = scratch<float>(dev, to.rows(), to.cols());
    for (std::size_t b = 0; b < segments.size(); ++b)
      ascend::for_each_place(segments, whole, b, [&](const Segment& part, Index place) {
        const bool is_first = &part == &segments[b];  // what descends from it comes later
        Elementwise<D>::convert(dev, all.row_slice(place, part.size()), sums.row_slice(part.begin, part.size()), 1,
                                !is_first);
      });
    for (const ascend::PackedSegments& pack : ascend::packed(segments, segments)) {
      const auto rows = [&](auto view) { return view.row_slice(pack.queries.begin, pack.queries.size()); };
      Elementwise<D>::convert(dev, View<D, const float>(rows(sums)), rows(to), 1, false);
    }
  }

  template <class T>
  static void backward_of_whole(D& dev, const AttentionShape& shape, View<D, const T> q, View<D, const T> k,
                                View<D, const T> v, View<D, const T> out, std::span<const Segment> queries,
                                std::span<const Segment> keys, const Saved<T>& saved, View<D, const T> dout,
                                View<D, T> dq, View<D, T> dk, View<D, T> dv) {
    // The operator does not write over what it reads.
    const auto apart = [&](View<D, T> gradient, const auto& f) {
      bool reads = false;
      for (const View<D, const T>& operand : {q, k, v, out, dout}) reads = reads || gradient.data() == operand.data();
      if (!reads) return f(gradient);
      const Arena::Scope scope(dev.arena());
      const View<D, T> place = scratch<T>(dev, gradient.rows(), gradient.cols());
      f(place);
      Elementwise<D>::convert(dev, View<D, const T>(place), gradient, 1, false);
    };
    apart(dq, [&](View<D, T> to_q) {
      apart(dk, [&](View<D, T> to_k) {
        apart(dv, [&](View<D, T> to_v) {
          gradients<T>(dev, shape, q, k, v, out, queries, keys, saved, dout, to_q, to_k, to_v);
        });
      });
    });
  }

  template <class T>
  static void gradients(D& dev, const AttentionShape& shape, View<D, const T> q, View<D, const T> k, View<D, const T> v,
                        View<D, const T> out, std::span<const Segment> queries, std::span<const Segment> keys,
                        const Saved<T>& saved, View<D, const T> dout, View<D, T> dq, View<D, T> dk, View<D, T> dv) {
    const ascend::Operand mask = dev.state<ascend::CausalMask>().operand();
    for (const ascend::PackedSegments& pack : ascend::packed(queries, keys)) {
      const Arena::Scope scope(dev.arena());
      const auto rows = [&](auto view) { return view.row_slice(pack.queries.begin, pack.queries.size()); };
      const auto key_rows = [&](auto view) { return view.row_slice(pack.keys.begin, pack.keys.size()); };
      const auto read = [&](View<D, const T> view, Index heads) {
        return ascend::heads(ascend::aligned(dev, view), heads);
      };
      const Index h = shape.heads, g = shape.kv_heads;
      const ascend::Operand own_q = read(rows(q), h), own_k = read(key_rows(k), g), own_v = read(key_rows(v), g),
                            own_dout = read(rows(dout), h), own_out = read(rows(out), h);
      ascend::write_aligned(dev, rows(dq), false, false, [&](View<D, T> to_q) {
        ascend::write_aligned(dev, key_rows(dk), false, false, [&](View<D, T> to_k) {
          ascend::write_aligned(dev, key_rows(dv), false, false, [&](View<D, T> to_v) {
            ascend::launch(dev, dev.toolkit().operators.flash_attention_grad, own_q, own_k, own_v, own_dout,
                           ascend::no_operand, ascend::no_operand, ascend::no_operand, mask,
                           ascend::heads(rows(saved.top), h), ascend::heads(rows(saved.sum), h), ascend::no_operand,
                           own_out, ascend::no_operand, pack.query_ends, pack.key_ends, shape.scale, keep_all,
                           any_distance, any_distance, std::int64_t{h}, layout, default_precision, causal,
                           ascend::heads(to_q, h), ascend::heads(to_k, g), ascend::heads(to_v, g),
                           ascend::empty_operand(ascend::acl_type<T>));
          });
        });
      });
    }
  }

  static constexpr double keep_all = 1;  // no dropout of probabilities
  static constexpr std::int64_t any_distance = std::numeric_limits<std::int32_t>::max();
  static constexpr const char* layout = "TND";
  static constexpr std::int64_t default_precision = 0;
  static constexpr std::int64_t causal = 3;  // up to the bottom right corner: a sequence's last query sees its last key
};

}  // namespace lora::kernel
