#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/settings/keys.hpp"

namespace lora::settings {

namespace detail {

/// Edit distance of two names; swapping two adjacent letters counts as one edit, and "-" equals "_".
std::size_t edits_between(std::string_view given, std::string_view name);

}  // namespace detail

/// The name with the smallest edit distance; empty if none is within one edit per three letters.
std::string_view nearest_name(std::string_view given, const std::vector<std::string_view>& names);

/// The key of these commands with the most similar name; empty if none is similar.
std::string_view nearest_key(std::string_view given, unsigned commands);

/// A command of other programs, and what does its work here.
struct ForeignCommand {
  std::string_view name;
  std::string_view here;  ///< a sentence
};

constexpr ForeignCommand foreign_commands[] = {
    {"deploy", "not there: merge writes a model folder that servers of such models take"},
    {"dpo", "not there: train learns from answers, not from preferences"},
    {"evaluate", "eval"},
    {"finetune", "train"},
    {"fit", "train"},
    {"infer", "generate, which answers records, or chat"},
    {"inference", "generate, which answers records, or chat"},
    {"predict", "eval with predict, which scores the answers, or generate"},
    {"pretrain", "train, with finetuning_type full, on records of plain text"},
    {"pt", "train, on records of plain text"},
    {"rlhf", "not there: train learns from answers, not from preferences"},
    {"serve", "not there: merge writes a model folder that servers of such models take"},
    {"sft", "train"},
    {"test", "eval"},
    {"webchat", "chat, which talks in a terminal, or by pipes with jsonl"},
    {"webui", "not there: the keys of a run stand in a file, for --config"},
};

/// Whether a name's value is not for every eye, by how it ends: token, key, secret, password or url. No message shows
/// it.
bool is_secret(std::string_view name);

/// The same with "..." for such values.
io::Json without_secrets(io::Json json);

/// An unknown key, with its value as the user wrote it, if any.
struct UnknownKey {
  std::string name;
  std::string given = {};
};

namespace detail {

/// A hint at what the user may have meant, or empty.
std::string meant(std::string_view given, unsigned commands);

}  // namespace detail

/// Reports all unknown keys, each with a hint. `page` lists the known ones.
/// Throws   ConfigError
[[noreturn]] void refuse_unknown(std::string_view where, std::span<const UnknownKey> unknown, unsigned commands,
                                 std::string_view page);

}  // namespace lora::settings

#ifndef LORA_COMPILED
#  include "lora/settings/unknown_key.ipp"
#endif
