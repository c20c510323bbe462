#pragma once

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "lora/core/format.hpp"
#include "lora/model/decoder.hpp"
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
inline ResidentPages resident_pages(std::istream& smaps) {
  ResidentPages pages;
  double* of_file = nullptr;
  double resident = 0;
  for (std::string line; std::getline(smaps, line);) {
    const auto number = [&](std::string_view field) {
      return std::strtod(line.c_str() + field.size(), nullptr) * 1024;
    };
    if (line.starts_with("Rss:")) {
      resident = number("Rss:");
    } else if (line.starts_with("Anonymous:")) {  // comes after Rss; what was written to a private mapping counts here
      const double own = of_file == nullptr ? resident : number("Anonymous:");
      pages.own += own;
      if (of_file != nullptr) *of_file += resident - own;
    } else if (!line.empty() && line.find(':') > line.find(' ')) {  // "7f00-7f20 r--p 00000000 08:01 123   /path"
      const std::string_view path = std::string_view(line).substr(std::min(line.find('/'), line.size()));
      const bool weights = path.ends_with(".safetensors") || path.ends_with(".gguf");
      of_file = path.empty() ? nullptr : weights ? &pages.model_files : &pages.other_files;
    }
  }
  return pages;
}

inline ResidentPages resident_pages() {
  std::ifstream smaps("/proc/self/smaps");
  return resident_pages(smaps);
}

/// The memory of a training run by use, in bytes.
struct MemoryUse {
  ResidentPages pages;
  double activations = 0;  ///< peak of what is saved for backward
  double workspace = 0;    ///< peak scratch
  double trained = 0;      ///< masters of all that may train, and copies in the type of the products
  double gradients = 0;    ///< of what trains now
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
  double all = 0, training = 0;
  decoder.params().for_each([&](const auto& param) {
    all += static_cast<double>(param.value.size());
    training += static_cast<double>(param.grad.size());
  });
  use.trained = all * (sizeof(Accum<T>) + (nn::Param<D, T>::has_copy ? sizeof(T) : 0));
  use.gradients = training * sizeof(Accum<T>);
  use.optimizer = 2 * training * sizeof(Accum<T>);
  use.peak = peak_memory_gib() * 0x1p30;
  return use;
}

/// A table in Markdown.
inline std::string to_text(const MemoryUse& use) {
  std::string text = "| memory | MiB |\n|---|---:|\n";
  const auto row = [&](std::string_view what, double bytes) {
    text += concat("| ", what, " | ", fixed(bytes / 0x1p20, 1), " |\n");
  };
  row("weights, pages of mapped files", use.pages.model_files);
  row("activations kept for backward, at most", use.activations);
  row("workspace, at most", use.workspace);
  row("what trains", use.trained);
  row("gradients", use.gradients);
  row("optimizer", use.optimizer);
  row("tokenizer, data, libraries' own and the rest", use.other());
  row("program and libraries, pages of mapped files", use.pages.other_files);
  row("resident now", use.pages.own + use.pages.model_files + use.pages.other_files);
  row("resident at the peak", use.peak);
  return text;
}

}  // namespace lora::run
