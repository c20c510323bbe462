#pragma once

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "lora/core/format.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/run/environment.hpp"
#include "lora/run/progress.hpp"

namespace lora::run {

/// Resident memory of this process, in bytes.
struct ResidentPages {
  double model_files = 0;  ///< mapped weights: shared between processes, and reclaimable
  double other_files = 0;  ///< the program and its libraries, likewise
  double own = 0;          ///< private memory
};

/// From the text of /proc/self/smaps.
ResidentPages resident_pages(std::istream& smaps);

ResidentPages resident_pages();

/// The memory of a training run by use, in bytes.
struct MemoryUse {
  ResidentPages pages;
  double activations = 0;  ///< peak of what is saved for backward
  double workspace = 0;    ///< peak scratch
  double trained = 0;      ///< masters of all that may train, or a rank's part, and what products read of them
  double gradients = 0;    ///< of what trains now, or a rank's part
  double optimizer = 0;    ///< and two moments of it
  double peak = 0;         ///< peak resident memory, as the system counts it

  double other() const { return std::max(0.0, pages.own - activations - workspace - trained - gradients - optimizer); }
};

/// For a model that AdamW trains, or its adapter.
template <AnyDevice D, class T>
MemoryUse memory_use(D& dev, model::Decoder<D, T>& decoder) {
  MemoryUse use;
  use.pages = resident_pages();
  use.activations = static_cast<double>(dev.arena().peak_saved());
  use.workspace = static_cast<double>(dev.arena().peak_scratch());
  auto& params = decoder.params();
  double training = 0;
  for (Index group = 0; group < params.groups(); ++group)
    training += static_cast<double>(params.slab(group).grad.size());
  use.trained = static_cast<double>(params.value_bytes());
  use.gradients = training * sizeof(Accum<T>);
  use.optimizer = 2 * training * sizeof(Accum<T>);
  use.peak = peak_memory_gib() * 0x1p30;
  return use;
}

/// A table in Markdown.
std::string to_text(const MemoryUse& use);

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/memory_use.ipp"
#endif
