#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "lora/ascend/runtime/launch.hpp"

// Operators need tensors that are aligned to 32 bytes, and some need them contiguous. Nearly all views are; columns of
// h may not be where a rank is no multiple of a block, nor rows of narrow matrices.

namespace lora::ascend {

/// Elements by which a view's begin is off an address that is aligned to view_alignment.
template <class T>
Index misalignment(View<Device, T> view) {
  return static_cast<Index>(reinterpret_cast<std::uintptr_t>(view.data()) % view_alignment / sizeof(T));
}

/// y = x, of any strides and types. Both are aligned to 32 bytes.
inline void copy(Device& dev, const Operand& x, const Operand& y) {
  launch(dev, dev.toolkit().operators.inplace_copy, y, x);
}

namespace detail {

/// The view extended to the left by `before` elements, so that it is aligned: each row of a strided view, or, of a
/// contiguous one, whose rows have no room between them, all of it as one row.
template <class T>
View<Device, T> widened(View<Device, T> view, Index before) {
  T* const begin = view.data() - before;
  if (view.contiguous()) return View<Device, T>(begin, 1, before + view.size());
  if (before + view.cols() > view.stride())
    fail<ShapeError>("[ascend] rows of ", view.cols(), " ", name_of(acl_type<std::remove_const_t<T>>),
                     ", with a stride of ", view.stride(), ", begin ", before,
                     " elements behind an address aligned to ", view_alignment,
                     " bytes; expected as many between the rows");
  return View<Device, T>(begin, view.rows(), before + view.cols(), view.stride());
}

template <class T>
void take_columns(Device& dev, View<Device, T> from, Index begin, View<Device, std::remove_const_t<T>> to) {
  launch(dev, dev.toolkit().operators.slice, from, std::int64_t{1}, std::int64_t{begin}, begin + to.cols(),
         std::int64_t{1}, to);
}

}  // namespace detail

/// The view if it is aligned to 32 bytes, else a copy in scratch of the enclosing scope.
template <class T>
View<Device, const T> aligned(Device& dev, View<Device, const T> view) {
  const Index before = view.size() == 0 ? 0 : misalignment(view);
  if (before == 0) return view;
  const View<Device, T> copied = scratch<T>(dev, view.rows(), view.cols());
  const View<Device, const T> wide = detail::widened(view, before);
  detail::take_columns(dev, wide, before, wide.rows() == view.rows() ? copied : copied.flat());
  return copied;
}

/// The same, and contiguous.
template <class T>
View<Device, const T> compact(Device& dev, View<Device, const T> view) {
  const View<Device, const T> begin = aligned(dev, view);
  if (begin.contiguous()) return begin;
  const View<Device, T> copied = scratch<T>(dev, view.rows(), view.cols());
  copy(dev, begin, copied);
  return copied;
}

/// Calls f(place) with the view if it is aligned to 32 bytes and, if `wants_compact`, contiguous; else with scratch,
/// which is copied to the view afterward. `reads`: f adds to what is there.
template <class T, class F>
void write_aligned(Device& dev, View<Device, T> view, bool reads, bool wants_compact, F&& f) {
  if (view.size() == 0) return;
  const Index before = misalignment(view);
  if (before == 0 && (!wants_compact || view.contiguous())) return f(view);
  const Arena::Scope scope(dev.arena());
  const View<Device, T> place = scratch<T>(dev, view.rows(), view.cols());
  if (before == 0) {
    if (reads) copy(dev, view, place);
    f(place);
    return copy(dev, place, view);
  }
  // The view can only be written together with the elements before it, which keep their values.
  const View<Device, T> wide = detail::widened(view, before);
  const View<Device, T> own = wide.rows() == view.rows() ? place : place.flat();
  if (reads) detail::take_columns(dev, wide, before, own);
  f(place);
  const View<Device, T> kept = scratch<T>(dev, wide.rows(), before), whole = scratch<T>(dev, wide.rows(), wide.cols());
  detail::take_columns(dev, wide, 0, kept);
  launch(dev, dev.toolkit().operators.cat, std::vector<Operand>{kept, own}, std::int64_t{1}, whole);
  copy(dev, whole, wide);
}

}  // namespace lora::ascend
