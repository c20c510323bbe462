#pragma once

#include "lora/core/config.hpp"
#include "lora/run/memory_use.hpp"

namespace lora::run {

LORA_INLINE ResidentPages resident_pages(std::istream& smaps) {
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

LORA_INLINE ResidentPages resident_pages() {
  std::ifstream smaps("/proc/self/smaps");
  return resident_pages(smaps);
}

LORA_INLINE std::string to_text(const MemoryUse& use) {
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
