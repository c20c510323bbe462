#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/ascend/kernels/elementwise.hpp"
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

/// What descends from segments with keys: the keys of one of these, and rows that see all of them, a sequence for each
/// segment that these rows are of. In the order of the segments whose keys they are.
inline std::vector<PackedSegments> descendants(std::span<const kernel::Segment> queries,
                                               std::span<const kernel::Segment> keys) {
  std::vector<PackedSegments> all;
  for (Index p = 0; p < std::ssize(keys); ++p) {
    const kernel::Segment& seen = keys[static_cast<std::size_t>(p)];
    if (seen.size() == 0) continue;
    const auto below = queries.subspan(static_cast<std::size_t>(p + 1),
                                       static_cast<std::size_t>(kernel::end_of_tree(keys, p) - p - 1));
    for (PackedSegments& pack : packed(below, below)) {
      pack.keys = {seen.begin, seen.end};
      all.push_back(std::move(pack));
    }
  }
  return all;
}

/// Calls use(rows) for the rows of each segment of a pack's queries.
template <class Use>
void for_each_sequence(const PackedSegments& pack, const Use& use) {
  Index begin = pack.queries.begin;
  for (const std::int64_t end : pack.query_ends) {
    use(kernel::Segment{begin, pack.queries.begin + end});
    begin = pack.queries.begin + end;
  }
}

/// Where sequences end, in the NPU's memory, where one of attention's operators reads it. All layers of a pass ask for
/// the same ends, which are copied once.
class SequenceEnds {
 public:
  explicit SequenceEnds(Device& dev) : dev_(dev) {}

  /// For each pack a 0 and its ends.
  std::vector<View<Device, const std::int64_t>> of(std::span<const PackedSegments> packs) {
    constexpr std::size_t unit = view_alignment / sizeof(std::int64_t);
    std::vector<std::int64_t> all;
    std::vector<std::size_t> begins;
    for (const PackedSegments& pack : packs) {
      begins.push_back(all.size());
      all.push_back(0);
      all.insert(all.end(), pack.query_ends.begin(), pack.query_ends.end());
      all.resize((all.size() + unit - 1) / unit * unit);
    }
    if (all != ends_) {
      ends_.clear();
      const auto count = static_cast<Index>(all.size());
      if (!memory_ || memory_->cols() < count) {
        dev_.synchronize();  // nothing reads what goes away
        memory_.emplace(dev_, 1, 2 * count);
      }
      copy_staged<Device, std::int64_t>(dev_, all, memory_->view().col_slice(0, count));
      ends_ = std::move(all);
    }
    std::vector<View<Device, const std::int64_t>> views;
    for (std::size_t i = 0; i < packs.size(); ++i)
      views.push_back(memory_->view().col_slice(static_cast<Index>(begins[i]), std::ssize(packs[i].query_ends) + 1));
    return views;
  }

 private:
  Device& dev_;
  std::vector<std::int64_t> ends_;  // that are there, one pack's behind another's
  std::optional<Tensor<Device, std::int64_t>> memory_;
};

}  // namespace lora::ascend

namespace lora::kernel {

/// The vendor's fused attention over packed sequences, which knows no trees. Where segments have parents, each sees its
/// own keys first, and then those of one segment after another that it descends from, from the first on, without a
/// mask. Ring attention does the same with the keys of other NPUs: an operator puts what a row has of both together,
/// and the gradients are those of each part of the keys, by the statistics of all. They are added up in float32, a
/// row's own first, and rounded once. Bits of a sequence do not depend on the others.
///
/// A window is the operator's band, which like the triangle ends at the lower right corner; one that no sequence of a
/// call is longer than is none. Segments that have parents take none: a band knows nothing of how far away a parent's
/// keys are.
///
/// Statistics of a call lie as its sequences want it, (H, rows, 8) of each by the vendor's documents. No call but
/// theirs reads them, and all have the same sequences: a segment's rows.
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

  /// No window, and what the operator that puts parts together takes by its documents, which has a row with all its
  /// heads in a core's 192 KiB: C a multiple of 64 up to 768, H so many that H·C (6·sizeof(T) + 8) + 56·(8·H, rounded
  /// up to whole 64) is no more than that. By default in float32, in which it takes fewest.
  template <class T = float>
  static constexpr bool takes_trees(const AttentionShape& shape) {
    const Index numbers = shape.heads * shape.width, statistics = (shape.heads * copies + 63) / 64 * 64;
    return shape.window == 0 && shape.width % 64 == 0 && shape.width <= 768 &&
           numbers * (6 * Index{sizeof(T)} + 8) + statistics * 56 <= Index{192} << 10;
  }
  /// In every type, where the toolkit has the operator.
  static bool takes_trees(D& dev, const AttentionShape& shape) {
    return takes_trees(shape) && dev.toolkit().operators.ring_attention_update.there();
  }

  /// Throws   ShapeError for segments with parents under a window, or whose heads the operator does not take,
  /// DeviceError where the toolkit lacks it
  template <class T>
  static void run(D& dev, const AttentionShape& given, View<D, const T> q, View<D, const T> k, View<D, const T> v,
                  std::span<const Segment> queries, std::span<const Segment> keys, View<D, T> out, Saved<T>* saved) {
    check_cap("attention", given);
    const AttentionShape shape = with_window_that_cuts(given, keys);
    const std::vector<ascend::PackedSegments> below = ascend::descendants(queries, keys);
    if (ascend::has_trees(keys)) expect_trees<T>(dev, "attention", shape);
    if (!below.empty()) return run_trees<T>(dev, shape, q, k, v, queries, keys, below, out, saved);
    see_own_keys<T>(dev, shape, q, k, v, queries, keys, out, saved);
  }

  /// dq may share memory with q, out or dout, dk with k and dv with v.
  /// Throws   as run
  template <class T>
  static void backward(D& dev, const AttentionShape& given, View<D, const T> q, View<D, const T> k, View<D, const T> v,
                       View<D, const T> out, std::span<const Segment> segments, const Saved<T>& saved,
                       View<D, const T> dout, View<D, T> dq, View<D, T> dk, View<D, T> dv) {
    check_cap("attention_backward", given);
    const AttentionShape shape = with_window_that_cuts(given, segments);
    const Arena::Scope scope(dev.arena());
    const std::vector<ascend::PackedSegments> below = ascend::descendants(segments, segments);
    if (ascend::has_trees(segments)) expect_trees<T>(dev, "attention_backward", shape);
    if (!below.empty()) return backward_of_trees<T>(dev, shape, q, k, v, out, segments, below, saved, dout, dq, dk, dv);
    // The operator does not write over what it reads.
    const auto apart = [&](View<D, T> gradient, const auto& f) {
      bool reads = false;
      for (const View<D, const T>& operand : {q, k, v, out, dout}) reads = reads || gradient.data() == operand.data();
      if (!reads) return f(gradient);
      const Arena::Scope place_scope(dev.arena());
      const View<D, T> place = scratch<T>(dev, gradient.rows(), gradient.cols());
      f(place);
      Elementwise<D>::convert(dev, View<D, const T>(place), gradient, 1, false);
    };
    apart(dq, [&](View<D, T> to_q) {
      apart(dk, [&](View<D, T> to_k) {
        apart(dv, [&](View<D, T> to_v) {
          gradients_of_own_keys<T>(dev, shape, q, k, v, out, segments, saved, dout, to_q, to_k, to_v);
        });
      });
    });
  }

 private:
  template <class T>
  static View<D, T> rows_of(View<D, T> view, const Segment& rows) {
    return view.row_slice(rows.begin, rows.size());
  }

  static AttentionShape with_window_that_cuts(AttentionShape shape, std::span<const Segment> keys) {
    bool cuts = false;
    for (Index b = 0; b < std::ssize(keys); ++b) cuts = cuts || sequence_rows(keys, b) > shape.window;
    if (!cuts) shape.window = 0;
    return shape;
  }

  static void check_cap(std::string_view kernel, const AttentionShape& shape) {
    if (shape.cap > 0)
      fail<ShapeError>("[", kernel, "] a cap of ", shape.cap,
                       "; expected none: the vendor's operator has no such step");
  }

  template <class T>
  static void expect_trees(D& dev, std::string_view kernel, const AttentionShape& shape) {
    if (shape.window > 0)
      fail<ShapeError>("[", kernel, "] segments have parents, and each query sees a window of ", shape.window,
                       " keys; expected one of the two");
    if (!takes_trees<T>(shape))
      fail<ShapeError>(
          "[", kernel, "] segments have parents, and ", shape.heads, " heads are ", shape.width, " wide, in ",
          ascend::name_of(ascend::acl_type<T>),
          "; expected a multiple of 64 up to 768, and so many heads that an operator has room for a row's");
    const auto& update = dev.toolkit().operators.ring_attention_update;
    if (!update.there())
      fail<DeviceError>("[", kernel, "] segments have parents, and the toolkit has no operator ", update.name,
                        ", which puts together what a row has of them; install one that does, or give each sequence ",
                        "whole");
  }

  /// Of segments without what they descend from.
  template <class T>
  static void see_own_keys(D& dev, const AttentionShape& shape, View<D, const T> q, View<D, const T> k,
                           View<D, const T> v, std::span<const Segment> queries, std::span<const Segment> keys,
                           View<D, T> out, const Saved<T>* saved) {
    const ascend::Operand mask = dev.state<ascend::CausalMask>().operand();
    for (const ascend::PackedSegments& pack : ascend::packed(queries, keys)) {
      const Arena::Scope scope(dev.arena());
      const Index n = pack.queries.size();
      const bool keeps = saved != nullptr;
      const View<D, float> top =
          keeps ? rows_of(saved->top, pack.queries) : scratch<float>(dev, n, shape.heads * copies);
      const View<D, float> sum =
          keeps ? rows_of(saved->sum, pack.queries) : scratch<float>(dev, n, shape.heads * copies);
      attend<T>(dev, shape, rows_of(q, pack.queries), rows_of(k, pack.keys), rows_of(v, pack.keys), pack.query_ends,
                pack.key_ends, mask, top, sum, rows_of(out, pack.queries));
    }
  }

  template <class T>
  static void run_trees(D& dev, const AttentionShape& shape, View<D, const T> q, View<D, const T> k, View<D, const T> v,
                        std::span<const Segment> queries, std::span<const Segment> keys,
                        std::span<const ascend::PackedSegments> below, View<D, T> out, const Saved<T>* saved) {
    const Arena::Scope scope(dev.arena());
    q = by_rows(dev, q);
    k = by_rows(dev, k);
    v = by_rows(dev, v);
    const bool writes = begins_anywhere(out);
    const View<D, T> whole = writes ? out : scratch<T>(dev, out.rows(), out.cols());
    const auto statistics = [&] { return scratch<float>(dev, q.rows(), shape.heads * copies); };
    const Saved<T> all = saved != nullptr ? *saved : Saved<T>{statistics(), statistics()};
    see_own_keys<T>(dev, shape, q, k, v, queries, keys, whole, &all);
    add_ancestors<T>(dev, shape, q, k, v, below, whole, all);
    if (writes) return;
    for (const ascend::PackedSegments& pack : ascend::packed(queries, queries))
      Elementwise<D>::convert(dev, View<D, const T>(rows_of(whole, pack.queries)), rows_of(out, pack.queries), 1,
                              false);
  }

  /// Whether rows from any on are aligned as the first are.
  template <class T>
  static bool begins_anywhere(View<D, T> x) {
    return x.stride() % (Index{view_alignment} / Index{sizeof(T)}) == 0;
  }
  /// x, or a copy.
  template <class T>
  static View<D, const T> by_rows(D& dev, View<D, const T> x) {
    return begins_anywhere(x) ? x : ascend::compact(dev, x);
  }

  /// One call: sequences of q against those of k and v, with the mask up to their lower right corners and in the
  /// window, without one whole.
  template <class T, class Mask>
  static void attend(D& dev, const AttentionShape& shape, View<D, const T> q, View<D, const T> k, View<D, const T> v,
                     const std::vector<std::int64_t>& query_ends, const std::vector<std::int64_t>& key_ends,
                     const Mask& mask, View<D, float> top, View<D, float> sum, View<D, T> out) {
    const Arena::Scope scope(dev.arena());
    const Index h = shape.heads, g = shape.kv_heads;
    const Sparsity sees = sparsity<Mask>(shape);
    const View<D, const T> own_q = ascend::aligned(dev, q), own_k = ascend::aligned(dev, k),
                           own_v = ascend::aligned(dev, v);
    ascend::write_aligned(dev, out, false, false, [&](View<D, T> place) {
      ascend::launch(dev, dev.toolkit().operators.flash_attention, ascend::heads(own_q, h), ascend::heads(own_k, g),
                     ascend::heads(own_v, g), ascend::no_operand, ascend::no_operand, ascend::no_operand, mask,
                     ascend::no_operand, query_ends, key_ends, shape.scale, keep_all, sees.before, sees.behind,
                     std::int64_t{h}, layout, default_precision, sees.mode, ascend::heads(top, h),
                     ascend::heads(sum, h), ascend::empty_operand(ascend::acl_type<T>), ascend::heads(place, h));
    });
  }

  /// Puts what each row has of the segments that its own descends from to what it has of its own.
  template <class T>
  static void add_ancestors(D& dev, const AttentionShape& shape, View<D, const T> q, View<D, const T> k,
                            View<D, const T> v, std::span<const ascend::PackedSegments> below, View<D, T> out,
                            const Saved<T>& saved) {
    const std::vector<View<D, const std::int64_t>> ends = dev.state<ascend::SequenceEnds>().of(below);
    const Index h = shape.heads;
    for (std::size_t i = 0; i < below.size(); ++i) {
      const ascend::PackedSegments& pack = below[i];
      const Arena::Scope scope(dev.arena());
      const Index n = pack.queries.size();
      const auto place = [&] {
        return Part<T>{scratch<T>(dev, n, q.cols()), scratch<float>(dev, n, h * copies),
                       scratch<float>(dev, n, h * copies)};
      };
      const Part<T> part = place(), both = place();
      const View<D, const T> own_k = ascend::aligned(dev, rows_of(k, pack.keys)),
                             own_v = ascend::aligned(dev, rows_of(v, pack.keys));
      ascend::for_each_sequence(pack, [&](const Segment& rows) {
        const Segment at{rows.begin - pack.queries.begin, rows.end - pack.queries.begin};
        attend<T>(dev, shape, rows_of(q, rows), own_k, own_v, {rows.size()}, {pack.keys.size()}, ascend::no_operand,
                  rows_of(part.top, at), rows_of(part.sum, at), rows_of(part.out, at));
      });
      const View<D, T> to = rows_of(out, pack.queries);
      const View<D, float> top = rows_of(saved.top, pack.queries), sum = rows_of(saved.sum, pack.queries);
      const View<D, const T> before = ascend::aligned(dev, View<D, const T>(to));
      ascend::launch(dev, dev.toolkit().operators.ring_attention_update, ascend::heads(before, h),
                     ascend::heads(top, h), ascend::heads(sum, h), ascend::heads(part.out, h),
                     ascend::heads(part.top, h), ascend::heads(part.sum, h), ascend::vector(ends[i]), layout,
                     ascend::heads(both.out, h), ascend::heads(both.top, h), ascend::heads(both.sum, h));
      Elementwise<D>::convert(dev, View<D, const T>(both.out), to, 1, false);
      ascend::copy(dev, both.top, top);
      ascend::copy(dev, both.sum, sum);
    }
  }

  /// What rows have of some of their keys.
  template <class T>
  struct Part {
    View<D, T> out;           // (N, H·C)
    View<D, float> top, sum;  // (N, H·8)
  };

  template <class T>
  static void backward_of_trees(D& dev, const AttentionShape& shape, View<D, const T> q, View<D, const T> k,
                                View<D, const T> v, View<D, const T> out, std::span<const Segment> segments,
                                std::span<const ascend::PackedSegments> below, const Saved<T>& saved,
                                View<D, const T> dout, View<D, T> dq, View<D, T> dk, View<D, T> dv) {
    q = by_rows(dev, q);
    k = by_rows(dev, k);
    v = by_rows(dev, v);
    out = by_rows(dev, out);
    dout = by_rows(dev, dout);
    const auto like = [&]<class E>(E, View<D, T> x) { return scratch<E>(dev, x.rows(), x.cols()); };
    const View<D, float> sum_q = like(float{}, dq), sum_k = like(float{}, dk), sum_v = like(float{}, dv);
    const View<D, T> part_q = like(T{}, dq), part_k = like(T{}, dk), part_v = like(T{}, dv);
    const auto add = [&](View<D, T> part, View<D, float> sum, const Segment& rows, bool first) {
      Elementwise<D>::convert(dev, View<D, const T>(rows_of(part, rows)), rows_of(sum, rows), 1, !first);
    };
    gradients_of_own_keys<T>(dev, shape, q, k, v, out, segments, saved, dout, part_q, part_k, part_v);
    const std::vector<ascend::PackedSegments> all = ascend::packed(segments, segments);
    for (const ascend::PackedSegments& pack : all) {
      add(part_q, sum_q, pack.queries, true);
      add(part_k, sum_k, pack.keys, true);
      add(part_v, sum_v, pack.keys, true);
    }
    for (const ascend::PackedSegments& pack : below) {
      const Arena::Scope scope(dev.arena());
      const View<D, const T> own_k = ascend::aligned(dev, rows_of(k, pack.keys)),
                             own_v = ascend::aligned(dev, rows_of(v, pack.keys));
      ascend::for_each_sequence(pack, [&](const Segment& rows) {
        differentiate<T>(dev, shape, rows_of(q, rows), own_k, own_v, rows_of(out, rows), {rows.size()},
                         {pack.keys.size()}, ascend::no_operand, rows_of(saved.top, rows), rows_of(saved.sum, rows),
                         rows_of(dout, rows), rows_of(part_q, rows), rows_of(part_k, pack.keys),
                         rows_of(part_v, pack.keys));
        add(part_k, sum_k, pack.keys, false);
        add(part_v, sum_v, pack.keys, false);
      });
      add(part_q, sum_q, pack.queries, false);
    }
    for (const ascend::PackedSegments& pack : all) {
      const auto round = [&](View<D, float> sum, View<D, T> to) {
        Elementwise<D>::convert(dev, View<D, const float>(rows_of(sum, pack.queries)), rows_of(to, pack.queries), 1,
                                false);
      };
      round(sum_q, dq);
      round(sum_k, dk);
      round(sum_v, dv);
    }
  }

  /// Of segments without what they descend from.
  template <class T>
  static void gradients_of_own_keys(D& dev, const AttentionShape& shape, View<D, const T> q, View<D, const T> k,
                                    View<D, const T> v, View<D, const T> out, std::span<const Segment> segments,
                                    const Saved<T>& saved, View<D, const T> dout, View<D, T> dq, View<D, T> dk,
                                    View<D, T> dv) {
    const ascend::Operand mask = dev.state<ascend::CausalMask>().operand();
    for (const ascend::PackedSegments& pack : ascend::packed(segments, segments)) {
      const auto rows = [&](auto view) { return rows_of(view, pack.queries); };
      differentiate<T>(dev, shape, rows(q), rows(k), rows(v), rows(out), pack.query_ends, pack.key_ends, mask,
                       rows(saved.top), rows(saved.sum), rows(dout), rows(dq), rows(dk), rows(dv));
    }
  }

  /// The gradients of one call.
  template <class T, class Mask>
  static void differentiate(D& dev, const AttentionShape& shape, View<D, const T> q, View<D, const T> k,
                            View<D, const T> v, View<D, const T> out, const std::vector<std::int64_t>& query_ends,
                            const std::vector<std::int64_t>& key_ends, const Mask& mask, View<D, float> top,
                            View<D, float> sum, View<D, const T> dout, View<D, T> dq, View<D, T> dk, View<D, T> dv) {
    const Arena::Scope scope(dev.arena());
    const Index h = shape.heads, g = shape.kv_heads;
    const Sparsity sees = sparsity<Mask>(shape);
    const auto read = [&](View<D, const T> view, Index heads) {
      return ascend::heads(ascend::aligned(dev, view), heads);
    };
    const ascend::Operand own_q = read(q, h), own_k = read(k, g), own_v = read(v, g), own_dout = read(dout, h),
                          own_out = read(out, h);
    ascend::write_aligned(dev, dq, false, false, [&](View<D, T> to_q) {
      ascend::write_aligned(dev, dk, false, false, [&](View<D, T> to_k) {
        ascend::write_aligned(dev, dv, false, false, [&](View<D, T> to_v) {
          ascend::launch(dev, dev.toolkit().operators.flash_attention_grad, own_q, own_k, own_v, own_dout,
                         ascend::no_operand, ascend::no_operand, ascend::no_operand, mask, ascend::heads(top, h),
                         ascend::heads(sum, h), ascend::no_operand, own_out, ascend::no_operand, query_ends, key_ends,
                         shape.scale, keep_all, sees.before, sees.behind, std::int64_t{h}, layout, default_precision,
                         sees.mode, ascend::heads(to_q, h), ascend::heads(to_k, g), ascend::heads(to_v, g),
                         ascend::empty_operand(ascend::acl_type<T>));
        });
      });
    });
  }

  static constexpr double keep_all = 1;  // no dropout of probabilities
  static constexpr std::int64_t any_distance = std::numeric_limits<std::int32_t>::max();
  static constexpr const char* layout = "TND";
  static constexpr std::int64_t default_precision = 0;
  /// Which keys a query sees, as the operators have it: a mode, and how many before and behind its own in a band.
  struct Sparsity {
    std::int64_t mode = 0, before = any_distance, behind = any_distance;
  };
  /// Up to the bottom right corner: a sequence's last query sees its last key. Without a mask all is seen.
  template <class Mask>
  static constexpr Sparsity sparsity(const AttentionShape& shape) {
    if (!std::same_as<Mask, ascend::Operand>) return {};
    if (shape.window == 0) return {.mode = 3};
    return {.mode = 4, .before = shape.window - 1, .behind = 0};
  }
};

}  // namespace lora::kernel
