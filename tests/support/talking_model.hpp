#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lora/instantiate.hpp"
#include "lora/model/decoder/adapter.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/decoding.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace lora::test {

/// A tiny model folder whose model answers in small letters and spaces, with the tokenizer of bytes. Its head is wider
/// than its tokenizer, as published ones are, and likes the ids that are no tokens best.
inline void write_talking_model(const io::Path& folder, DType dtype = DType::f32, RandomModel shape = {}) {
  shape.vocabulary = 264;
  shape.hidden = 32;
  shape.dtype = dtype;
  auto tensors = random_tensors(shape);
  for (auto& tensor : tensors) {
    if (tensor.name != "lm_head.weight") continue;
    const auto cols = static_cast<std::size_t>(tensor.shape[1]);
    for (std::size_t id = 0; id < 264; ++id) {
      const bool is_letter = id >= 'a' && id <= 'z';
      const double size = is_letter ? 4 : id == ' ' ? 5 : id >= 260 ? 40 : 0;
      for (std::size_t j = 0; j < cols; ++j) tensor.values[id * cols + j] *= size;
    }
  }
  write_model(folder, config_json(shape), tensors, shape.dtype);
  io::write_file(folder / "tokenizer.json", std::string_view(byte_tokenizer_json()));
  io::write_json(folder / "tokenizer_config.json", {{"eos_token", "<|im_end|>"}});
}

/// Writes an adapter of that model which changes what it says.
inline void write_talking_adapter(const io::Path& model, const io::Path& folder) {
  cpu::Device dev(1);
  model::Decoder<cpu::Device, float> decoder(dev, model::Source::open(model));
  model::AdapterConfig config;
  config.rank = 3;
  config.alpha = 4.5;
  decoder.attach(dev, config);
  fill_adapter(dev, decoder, 0.5);
  io::create_folders(folder);
  model::save_adapter(dev, decoder, folder);
}

/// Writes an adapter of a wider model, which it calls by a name.
inline void write_foreign_adapter(const io::Path& folder) {
  RandomModel wider;
  wider.hidden = 48;
  const TempFolder base;
  write_random_model(base.path(), wider);
  write_talking_adapter(base.path(), folder);
  auto config = io::read_json(folder / "adapter_config.json");
  config["base_model_name_or_path"] = "some/wider-model";
  io::write_json(folder / "adapter_config.json", config);
}

/// What is said where that adapter is given beside another model.
inline constexpr const char* foreign_adapter_message =
    "; the adapter belongs to another base model: its \"base_model_name_or_path\" is \"some/wider-model\"\n";

/// Text as the tokenizer of bytes has it: a byte is its own id, and the marks follow them.
inline Tokens byte_tokens(std::string_view text) {
  constexpr std::string_view marks[] = {"<|im_start|>", "<|im_end|>", "<think>", "</think>"};
  Tokens tokens;
  while (!text.empty()) {
    std::size_t taken = 1;
    tokens.push_back(static_cast<unsigned char>(text.front()));
    for (std::int32_t i = 0; i < 4; ++i)
      if (const std::string_view mark = marks[i]; text.starts_with(mark)) {
        tokens.back() = 256 + i;
        taken = mark.size();
      }
    text.remove_prefix(taken);
  }
  return tokens;
}

/// A question as ChatML asks it.
inline std::string chatml_question(std::string_view words) {
  return concat("<|im_start|>user\n", words, "<|im_end|>\n<|im_start|>assistant\n");
}

/// What the model says, found by whole forward passes, without a cache, in one sequence at a time.
class Listener {
 public:
  explicit Listener(const io::Path& model, const io::Path& adapter = {}) : decoder_(dev_, model::Source::open(model)) {
    if (adapter.empty()) return;
    const auto files = model::open_adapter(adapter);
    decoder_.attach(dev_, files.config);
    model::load_adapter(dev_, decoder_, files);
  }

  /// The likeliest token after these, of the first `choices` ids.
  std::int32_t next(const Tokens& tokens, std::ptrdiff_t choices) {
    const auto logits = logits_of(dev_, decoder_, tokens, {static_cast<std::int32_t>(tokens.size()) - 1});
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.begin() + choices) - logits.begin());
  }

  /// How it goes on after these tokens, of the ids that the tokenizer has, up to the first of `stops`.
  std::string continuation(Tokens tokens, std::size_t length, const Tokens& stops = {}) {
    std::string text;
    while (text.size() < length) {
      const std::int32_t token = next(tokens, 260);
      if (std::find(stops.begin(), stops.end(), token) != stops.end()) break;
      tokens.push_back(token);
      text += static_cast<char>(token);
    }
    return text;
  }
  std::string answer(std::string_view question, std::size_t length, const Tokens& stops = {}) {
    return continuation(byte_tokens(chatml_question(question)), length, stops);
  }

  /// Of each token that follows another: −log p of it, and whether it is the likeliest.
  struct Score {
    double loss;
    bool likeliest;
  };
  std::vector<Score> scores(const Tokens& tokens) {
    const auto logits = logits_of(dev_, decoder_, tokens);
    const std::size_t width = logits.size() / tokens.size();
    std::vector<Score> result;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const float* const row = logits.data() + i * width;
      const double top = static_cast<double>(*std::max_element(row, row + width));
      const double target = static_cast<double>(row[tokens[i + 1]]);
      double sum = 0;
      for (std::size_t j = 0; j < width; ++j) sum += std::exp(static_cast<double>(row[j]) - top);
      result.push_back({top + std::log(sum) - target, target >= top});
    }
    return result;
  }

 private:
  cpu::Device dev_{1};
  model::Decoder<cpu::Device, float> decoder_;
};

/// The JSON values of a text, one per line.
inline std::vector<io::Json> json_lines(std::string_view text) {
  std::vector<io::Json> lines;
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1)
    lines.push_back(io::parse_json(text.substr(at, end - at), "line"));
  return lines;
}

}  // namespace lora::test
