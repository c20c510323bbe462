#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/config_fields.hpp"

namespace lora::tokenizer::detail {

/// Fields of tokenizer_config.json that are read: here, in declared.hpp and in parts.hpp.
inline constexpr std::string_view config_fields_read =
    " add_bos_token add_eos_token add_prefix_space added_tokens_decoder additional_special_tokens chat_template "
    "clean_up_tokenization_spaces clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output "
    "extra_special_tokens fast_tokenizer_files fix_mistral_regex legacy model_specific_special_tokens "
    "split_special_tokens tokenizer_class ";

/// Those that change no ids: they say how batches are padded and texts cut off, what other libraries load, where the
/// files came from, or what transformers no longer reads.
inline constexpr std::string_view config_fields_harmless =
    " _commit_hash add_special_tokens auto_map backend bos_token_id chat_control_tokens cls_token_id device_map "
    "do_lower_case eos_token_id errors files_loaded from_slow init_inputs is_fast is_local keep_accents "
    "local_files_only "
    "mask_token_id max_len max_length merges_file model_input_names model_max_length model_type name_or_path "
    "pad_to_multiple_of pad_token_id pad_token_type_id padding padding_side processor_class remove_space "
    "response_schema response_template return_token_type_ids sep_token_id sp_model_kwargs "
    "slow_tokenizer_class spaces_between_special_tokens special_tokens_map_file stride strip_accents "
    "tokenize_chinese_chars "
    "tokenizer_file tokenizer_type torch_dtype transformers_version truncation truncation_side "
    "truncation_strategy trust_remote_code unk_token_id use_cache use_default_system_prompt use_fast "
    "use_source_tokenizer verbose vocab_file vocab_size ";

/// Warns once of fields that nothing here knows.
LORA_INLINE void warn_of_unknown_fields(const io::JsonView& config) {
  const auto among = [](std::string_view words, const std::string& key) {
    return words.find(" " + key + " ") != words.npos;
  };
  std::string unknown;
  config.for_each_field([&](const std::string& key, const io::JsonView&) {
    if (among(config_fields_read, key) || among(config_fields_harmless, key) || key.ends_with("_token")) return;
    unknown += concat(unknown.empty() ? "" : ", ", key);
  });
  if (!unknown.empty()) log::warn(config.place(), ": not known here, and so without effect: ", unknown);
}

LORA_INLINE TokenizerClass apply_class(TokenizerDocument& document, const TokenizerFolder& folder) {
  const std::string name = folder.class_name();
  const TokenizerClass kind = tokenizer_class_of(name, folder.model_type, names_byte_level(document.settings));
  if (kind != TokenizerClass::plain) {
    const io::JsonView config = folder.view();
    ClassSettings given{.prefix = config.get<bool>("add_prefix_space").value_or(kind == TokenizerClass::llama),
                        .legacy = config.get<bool>("legacy").value_or(false)};
    if (const auto unknown = config.find("unk_token"); unknown && !unknown->json().is_null())
      given.unknown = named_token(*unknown).content;
    take_parts_of_class(document, kind, given);
  } else if (!takes_file_as_it_is(folder.model_type) && brings_unknown_parts(name)) {
    log::warn(folder.config_name, ": \"tokenizer_class\" is ", name,
              ", which in transformers brings a pre-tokenizer, a ",
              "normalizer and special tokens of its own; here those of ", document.where, " count, so ids may differ");
  }
  return kind;
}

LORA_INLINE SentencePiecePrefix piece_prefix(const TokenizerFolder& folder) {
  const io::JsonView config = folder.view();
  const bool is_legacy = config.get<bool>("legacy").value_or(false);
  if (!folder.class_name().starts_with("LlamaTokenizer"))
    return is_legacy || !folder.config.contains("legacy") ? SentencePiecePrefix::as_in_file
                                                          : SentencePiecePrefix::first_if_in_file;
  if (!config.get<bool>("add_prefix_space").value_or(true)) return SentencePiecePrefix::never;
  return is_legacy ? SentencePiecePrefix::each : SentencePiecePrefix::first;
}

LORA_INLINE void read_config_fields(TokenizerParts& parts, const TokenizerFolder& folder) {
  const io::JsonView config = folder.view();
  warn_of_unknown_fields(config);
  for (const auto& file :
       config.get<std::vector<std::string>>("fast_tokenizer_files").value_or(std::vector<std::string>{}))
    if (file != "tokenizer.json")
      config.fail("\"fast_tokenizer_files\" names ", file, ", which is not supported; tokenizer.json is");
  if (config.get<bool>("fix_mistral_regex").value_or(false))
    config.fail(
        "\"fix_mistral_regex\" is true, which is not supported: it replaces the way in which tokenizer.json "
        "splits text; save the tokenizer once it is fixed, and leave the setting out");
  const bool is_bpe = !parts.pieces || parts.pieces->is_bpe();
  parts.cleans_up_spaces =
      config.get<bool>("clean_up_tokenization_spaces").value_or(false) &&
      (!is_bpe ||
       config.get<bool>("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output").value_or(false));
  parts.split_special_tokens = config.get<bool>("split_special_tokens").value_or(false);
  if (parts.split_special_tokens)
    log::warn(config.place(),
              ": \"split_special_tokens\" is true: special tokens in texts, also those that a chat "
              "template writes, are cut into pieces, as in transformers");
  if (!parts.pieces) return;
  parts.frame = {};
  if (parts.bos && config.get<bool>("add_bos_token").value_or(true)) parts.frame.before = {*parts.bos};
  if (parts.eos && config.get<bool>("add_eos_token").value_or(false)) parts.frame.after = {*parts.eos};
}

}  // namespace lora::tokenizer::detail
