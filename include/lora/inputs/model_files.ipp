#pragma once

#include "lora/core/config.hpp"
#include "lora/inputs/model_files.hpp"

namespace lora::inputs::detail {

/// Takes the rotary settings that the adapter was trained with from its config.json, unless keys were given.
/// Throws   ConfigError where a key contradicts it
LORA_INLINE void take_rotary_of(const io::Path& adapter, const settings::Config& config, model::Config& shape) {
  const io::Path file = adapter / "config.json";
  if (!io::is_there(file)) return;
  const io::JsonFile json(file);
  const double theta = model::theta_of(json.view(), shape.rope.theta);
  if (config.rope_theta && theta != *config.rope_theta)
    fail<ConfigError>("key rope_theta: given ", *config.rope_theta, ", but the adapter ", adapter.native(),
                      " was trained with ", theta);
  shape.rope.theta = theta;
  const bool told = json->has("no_rope_layers");
  const auto rotates = told ? model::rotates_of(json.view(), shape.num_hidden_layers, 0) : shape.rotates;
  if (config.no_rope_layers.empty()) {
    shape.rotates = rotates;
    return;
  }
  for (std::size_t i = 0; i < rotates.size(); ++i)
    if (rotates[i] != shape.rotates[i])
      fail<ConfigError>("key no_rope_layers: layer ", i, " would run ", shape.rotates[i] ? "with" : "without",
                        " rotary embedding, but the adapter ", adapter.native(), " was trained ",
                        rotates[i] ? "with" : "without");
}

/// Parts the head of a tied model from the embedding where the adapter has other numbers for it.
LORA_INLINE void take_head_of(const io::Path& adapter, model::Source& source) {
  if (!source.config().tie_word_embeddings || !model::parts_head(model::open_adapter(adapter), source.config())) return;
  log::info("the adapter ", adapter.native(), " has a head of its own, which is used instead of the embedding's ",
            "numbers although the base ties them");
  source.part_head();
}

/// The model of the key model_name_or_path.
LORA_INLINE model::Source whole_source(const std::string& name) {
  const io::Path path = find_model(name);
  expect_whole_model(path, name);
  if (path == io::Path(name) / "final_model") log::info(name, " is the folder of a run: its final_model is taken");
  return model::Source::open(path);
}

/// Also of a folder without weights, as plan takes it.
inline std::string model_type_at(const io::Path& path) {
  const io::Path file = path / "config.json";
  if (!io::is_there(file)) return model::Source::open(path).config().model_type;
  return io::JsonView::of_object(io::read_json(file), file.native()).at<std::string>("model_type");
}

/// Without this a file that was written for another model would train with this one's own text.
inline void expect_family(const settings::Config& config) {
  if (config.template_family.empty() || config.template_name != "auto" || config.model_name_or_path.empty() ||
      config.from_command_line.contains("template"))
    return;
  const std::string type = model_type_at(find_model(config.model_name_or_path));
  for (const settings::TemplateFamily& family : settings::template_families) {
    if (family.name != config.template_family) continue;
    std::string types;
    for (const std::string_view own : family.types) {
      if (own == type) return;
      if (own.empty()) continue;
      types += concat(types.empty() ? "" : " or ", own);
    }
    fail<ConfigError>(std::string_view(config.template_place), "key template: given ", family.name,
                      ", which is the text that models of type ", std::string_view(types), " carry, but ",
                      std::string_view(config.model_name_or_path), " is of type ", std::string_view(type),
                      "; allowed: auto for that model's own, or the name of its template");
  }
}

LORA_INLINE data::ChatTemplate choose_for(const settings::Config& config, const tokenizer::Tokenizer& tokenizer,
                                          const tokenizer::ChatFiles& adapter) {
  const std::string& key = config.template_name;
  if (adapter.chat_template.empty()) return data::choose_template(key, tokenizer);
  const std::string folder = find_adapter(config.adapter_name_or_path).native();
  std::string why;
  const auto trained = data::find_template(adapter.chat_template, tokenizer, &why);
  if (trained && (key == "auto" || key == trained->name())) {
    if (key == "auto" && adapter.chat_template == tokenizer.chat_template())
      return data::choose_template(key, tokenizer);
    data::expect_markers(tokenizer, *trained);
    return *trained;
  }
  auto chosen = data::choose_template(key, tokenizer);
  if (trained) {
    log::warn("key template: given ", key, ", but the adapter ", folder, " was trained with ", trained->name());
  } else if (adapter.chat_template != tokenizer.chat_template()) {
    log::warn("the chat template of the adapter ", folder, " can't be used (", std::string_view(why),
              "); conversations are ", "written by ", chosen.name(), key == "auto" ? ", the model's own" : "");
  }
  return chosen;
}

}  // namespace lora::inputs::detail

namespace lora::inputs {

LORA_INLINE std::vector<std::int32_t> stop_ids(const model::Source& source, const tokenizer::Tokenizer& tokenizer,
                                               const std::optional<data::ChatTemplate>& chat_template,
                                               const tokenizer::ChatFiles& taught) {
  std::vector<std::int32_t> ids = model::stop_ids_with(source, model::id_of_end(tokenizer, taught.eos_token));
  if (const auto eos = tokenizer.eos(); ids.empty() && eos) ids.push_back(*eos);
  if (chat_template)
    if (const auto end = tokenizer.id_of(chat_template->end_of_turn())) ids.push_back(*end);
  return ids;
}

LORA_INLINE std::optional<tokenizer::Tokenizer> find_tokenizer(const io::Path& model) {
  std::error_code ignored;
  if (std::filesystem::is_directory(model, ignored)) {
    if (!io::is_there(model / "tokenizer.json") && !io::is_there(model / "tokenizer.model")) return std::nullopt;
    return tokenizer::Tokenizer::from_folder(model);
  }
  if (model.extension() == ".gguf") {
    const auto file = io::Gguf::open(model);
    if (!file.has("tokenizer.ggml.model")) return std::nullopt;
    return tokenizer::Tokenizer::from_gguf(file);
  }
  return tokenizer::Tokenizer::from_file(model);
}

LORA_INLINE void fail_without_tokenizer(const io::Path& model) {
  fail<IoError>(model.native(), model.extension() == ".gguf" ? ": no tokenizer, whose key is tokenizer.ggml.model"
                                                             : ": no tokenizer.json and no tokenizer.model");
}

LORA_INLINE model::Source initial_source(const settings::Config& config) {
  const auto seed = static_cast<std::uint64_t>(config.seed);
  if (config.model_preset.empty()) {
    const io::Path path = find_model(config.model_name_or_path);
    return model::Source::initial(path, io::read_json(path / "config.json"), seed);
  }
  const io::Path path = find_model(config.tokenizer_name_or_path);
  const auto tokenizer = find_tokenizer(path);
  if (!tokenizer) fail_without_tokenizer(path);
  io::Json json = model::preset_config(config.model_preset);
  if (const auto size = json["vocab_size"].get<Index>(); tokenizer->vocab_size() > size)
    fail<ConfigError>("key model_preset: given ", config.model_preset, ", whose vocabulary has ", size,
                      " tokens, but the tokenizer of ", path.native(), " has ", tokenizer->vocab_size());
  if (const auto eos = tokenizer->eos()) json["eos_token_id"] = *eos;
  return model::Source::initial(path, std::move(json), seed);
}

LORA_INLINE model::Source open_source(const settings::Config& config) {
  auto source = config.train_from_scratch ? initial_source(config) : detail::whole_source(config.model_name_or_path);
  model::Config& shape = source.config();
  if (config.rope_theta) shape.rope.theta = *config.rope_theta;
  for (const Index layer : config.no_rope_layers) {
    if (layer >= shape.num_hidden_layers)
      fail<ConfigError>("key no_rope_layers: given ", layer, ", allowed: layers 0 to ", shape.num_hidden_layers - 1);
    shape.rotates[static_cast<std::size_t>(layer)] = false;
  }
  if (!config.adapter_name_or_path.empty()) {
    const io::Path adapter = find_adapter(config.adapter_name_or_path);
    detail::take_rotary_of(adapter, config, shape);
    detail::take_head_of(adapter, source);
  }
  return source;
}

LORA_INLINE std::string text_of_longest(const model::Config& config) {
  return concat("beyond ", nn::longest_rotation(config.rope),
                " the model's longrope scaling has other factors, which are not supported");
}

LORA_INLINE void expect_supported_length(const model::Config& config, Index length, std::string_view what) {
  if (length > nn::longest_rotation(config.rope))
    fail<ConfigError>(what, " ", length, " tokens, but ", text_of_longest(config), "; allowed: no more");
}

LORA_INLINE std::vector<std::int32_t> supported_prompt(const model::Config& config, const data::Encoder& encoder,
                                                       const data::Sample& sample) {
  auto ids = encoder.prompt(sample);
  expect_supported_length(config, std::ssize(ids), sample.where + ": a prompt of");
  return ids;
}

LORA_INLINE void warn_of_length(const model::Config& config, Index length, std::string_view what) {
  const Index longest = model::longest_sequence(config);
  if (longest == 0 || length <= longest) return;
  log::warn(what, " ", length, " tokens, but the model was made for ", longest,
            " (max_position_embeddings and its rope scaling): what it computes past them may be poor");
}

LORA_INLINE tokenizer::ChatFiles chat_files_of_adapter(const settings::Config& config,
                                                       const tokenizer::Tokenizer& tokenizer) {
  if (config.adapter_name_or_path.empty()) return {};
  auto files = tokenizer::read_chat_files(find_adapter(config.adapter_name_or_path));
  const auto chat = data::find_template(files.chat_template, tokenizer);
  if (chat && chat->end_of_turn() != files.eos_token && files.eos_token == data::end_of_text(tokenizer))
    files.eos_token.clear();
  return files;
}

LORA_INLINE data::ChatTemplate template_of(const settings::Config& config, const tokenizer::Tokenizer& tokenizer,
                                           const tokenizer::ChatFiles& adapter) {
  detail::expect_family(config);
  auto chosen = detail::choose_for(config, tokenizer, adapter);
  if (chosen.is_interpreted())
    log::info("the chat template is none of the known ones: its text is interpreted (", chosen.name(), ")");
  return chosen;
}

LORA_INLINE void refuse_unused_by(const std::optional<data::ChatTemplate>& chat_template,
                                  const settings::Config& config) {
  const auto refuse = [&](std::string_view key, std::string_view given, std::string_view lacks) {
    if (chat_template)
      fail<ConfigError>("key ", key, ": given ", given, ", but the template ", chat_template->name(), " ", lacks);
    fail<ConfigError>("key ", key, ": given ", given, ", but no record is a conversation, to be written by a template");
  };
  if (!config.date.empty() && !(chat_template && chat_template->prints_date()))
    refuse("date", config.date, "prints no date");
  if (config.enable_thinking && !(chat_template && chat_template->thinks_at_will()))
    refuse("enable_thinking", *config.enable_thinking ? "true" : "false", "writes the same for both values");
}

LORA_INLINE data::RenderOptions render_options(const settings::Config& config) {
  data::RenderOptions options;
  options.enable_thinking = config.enable_thinking.value_or(true);
  options.thinking_is_default = !config.enable_thinking;
  options.date = config.date;
  return options;
}

}  // namespace lora::inputs
