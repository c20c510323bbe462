#pragma once

#include <cstdint>
#include <string_view>

#include "lora/core/config.hpp"
#include "lora/inputs/records.hpp"

namespace lora::inputs {

LORA_INLINE MicroBatchLimit micro_batch_limit(const settings::Config& config) {
  constexpr Index enough = 1024;
  const bool usual = !config.max_tokens_per_micro_batch && !config.per_device_train_batch_size;
  return {.sequences = config.train_batch_size(),
          .tokens = usual ? enough : config.max_tokens_per_micro_batch.value_or(0),
          .cutoff_len = config.cutoff_len,
          .shares = config.shares_prefixes(),
          .usual = usual && !config.memory_limit_gib};
}

LORA_INLINE MicroBatchLimit with_room_for(MicroBatchLimit limit, Index beginning) {
  if (limit.usual && limit.shares) limit.tokens += std::min(beginning, limit.cutoff_len);
  limit.usual = false;
  return limit;
}

LORA_INLINE void warn_of_unused_fields(const data::Dataset& dataset) {
  for (const std::string& absent : dataset.take_absent_columns()) log::warn(std::string_view(absent));
  const auto fields = dataset.take_unused_fields();
  std::string list;
  for (std::size_t i = 0; i < fields.size() && i < 20; ++i) list += (i > 0 ? ", " : "") + fields[i];
  if (fields.size() > 20) list += ", ...";
  if (!fields.empty()) log::warn(dataset.name(), ": fields of records that are not used: ", list);
}

LORA_INLINE void Records::cut_texts(const cpu::Threads& threads) {
  const data::TextBlocks blocks = text_blocks();
  cut_ = {};
  constexpr std::size_t at_once = std::size_t{8} << 20;  // bytes of texts, so that their tokens take little memory
  std::vector<Index> longer;
  std::size_t bytes = 0;
  for (Index record = 0; record < dataset_.size(); ++record) {
    if (dataset_.kind_of(record) != data::Sample::Kind::text) continue;
    const std::size_t most = dataset_.bytes_of(record);
    if (encoder_.most_tokens(most) <= blocks.cutoff) continue;
    longer.push_back(record);
    bytes += most;
    if (bytes >= at_once) {
      cut(threads, blocks, longer);
      longer.clear();
      bytes = 0;
    }
  }
  cut(threads, blocks, longer);
  cut_.finish();
}

LORA_INLINE data::Example Records::operator[](Index sequence) const {
  const data::CutTexts::Part part = cut_[sequence];
  if (part.text.empty()) return encoder_(dataset_[part.record]);
  data::Example example = text_blocks().block(part.text, part.block);
  example.record = part.record;
  return example;
}

LORA_INLINE data::SequenceClasses Records::classes(const cpu::Threads& threads,
                                                   const data::Sequences& sequences) const {
  constexpr Index chunk = 4096;
  std::map<std::string, std::int32_t> found;  // labels, by their number in the order of their first record
  data::SequenceClasses classes;
  std::vector<std::optional<std::string>> labels;
  std::vector<std::exception_ptr> errors;
  for (Index begin = 0; begin < sequences.size(); begin += chunk) {
    const Index count = std::min(chunk, sequences.size() - begin);
    labels.assign(static_cast<std::size_t>(count), std::nullopt);
    errors.assign(static_cast<std::size_t>(count), nullptr);
    const auto follows = [&](Index item) {  // a block of the record before
      return item > 0 && record_of(sequences[begin + item]) == record_of(sequences[begin + item - 1]);
    };
    threads.parallel_items(count, [&](Index item) {
      const auto i = static_cast<std::size_t>(item);
      try {
        if (!follows(item)) labels[i] = dataset_[record_of(sequences[begin + item])].label;
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
    for (const auto& error : errors)
      if (error) std::rethrow_exception(error);
    for (Index item = 0; item < count; ++item) {
      const auto& label = labels[static_cast<std::size_t>(item)];
      if (follows(item)) {
        classes.of.push_back(classes.of.back());
      } else if (label) {
        classes.of.push_back(found.emplace(*label, static_cast<std::int32_t>(found.size())).first->second);
      } else {
        classes.of.push_back(-1);
      }
    }
  }
  std::vector<std::int32_t> place(found.size());  // among the sorted labels
  for (const auto& [label, number] : found) {
    place[static_cast<std::size_t>(number)] = static_cast<std::int32_t>(classes.labels.size());
    classes.labels.push_back(label);
  }
  for (std::int32_t& of : classes.of)
    if (of >= 0) of = place[static_cast<std::size_t>(of)];
  return classes;
}

LORA_INLINE data::EncodeSummary Records::survey(const cpu::Threads& threads, const data::Sequences& sequences,
                                                std::size_t most) const {
  constexpr std::size_t chunk = 1024;
  constexpr std::size_t looked_at = 64;  // of those that look longest
  const auto all = static_cast<std::size_t>(sequences.size());
  const std::size_t encoded = encoder_.may_pass_vocabulary() ? all : std::min(most, all);
  const auto sequence = [&](std::size_t at) { return sequences[static_cast<Index>(at)]; };
  // Of all records in order, the first at or past each multiple of all / encoded.
  const auto is_encoded = [&](std::size_t at) { return at == 0 || at * encoded / all > (at - 1) * encoded / all; };
  data::EncodeSummary summary;
  std::vector<data::Example> examples;
  std::vector<std::exception_ptr> errors;
  std::vector<std::size_t> sizes;
  std::vector<char> unanswered;
  std::vector<std::pair<std::size_t, Index>> longest;  // by size, of what is passed over
  for (std::size_t begin = 0; begin < all; begin += chunk) {
    const std::size_t count = std::min(chunk, all - begin);
    examples.assign(count, {});
    errors.assign(count, nullptr);
    sizes.assign(count, 0);
    unanswered.assign(count, 0);
    threads.parallel_items(static_cast<Index>(count), [&](Index item) {
      const auto i = static_cast<std::size_t>(item);
      try {
        if (is_encoded(begin + i) || is_block(sequence(begin + i))) {  // a block is tokenized already
          examples[i] = (*this)[sequence(begin + i)];
        } else {
          const data::Sample sample = dataset_[record_of(sequence(begin + i))];
          sizes[i] = encoder_.check(sample);
          unanswered[i] = sample.unanswered;
        }
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
    for (const auto& error : errors)
      if (error) std::rethrow_exception(error);
    for (std::size_t i = 0; i < count; ++i) {
      if (is_encoded(begin + i)) {
        summary.add(examples[i]);
      } else if (is_block(sequence(begin + i))) {
        summary.pass_over();
        summary.reaches(std::ssize(examples[i].tokens), examples[i].record);
      } else {
        summary.pass_over(unanswered[i] != 0);
        longest.emplace_back(sizes[i], sequence(begin + i));
      }
    }
    std::sort(longest.begin(), longest.end(), std::greater<>());
    if (longest.size() > looked_at) longest.resize(looked_at);
  }
  for (const auto& [size, passed_over] : longest) {
    const data::Example example = (*this)[passed_over];
    summary.reaches(std::ssize(example.tokens), example.record);
  }
  // Labels so rare that no encoded record has one.
  if (summary.labeled() == 0 && !summary.complete()) return survey(threads, sequences, all);
  if (!cut_.empty()) summary.cut_from(records_of(sequences));
  warn_of_unused_fields(dataset_);
  if (summary.unanswered() > 0)
    log::warn(dataset_.name(), ": ", summary.unanswered(), " of ", summary.records(),
              " records have an empty answer and are left out");
  return summary;
}

LORA_INLINE void expect_supported_records(const model::Config& shape, const Records& records,
                                          const data::EncodeSummary& found, Index cutoff_len) {
  expect_supported_length(shape, std::min(found.length_at(1), cutoff_len),
                          records.where(found.longest_record()) + ": a sequence of");
}

LORA_INLINE std::vector<data::Example> Records::learned(std::span<const Index> sequences, Index cutoff_len,
                                                        std::vector<Index>* places) const {
  std::vector<data::Example> examples;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    data::Example example = (*this)[sequences[i]];
    data::truncate(example, cutoff_len);
    if (example.labeled() == 0) continue;
    if (places != nullptr) places->push_back(static_cast<Index>(i));
    examples.push_back(std::move(example));
  }
  return examples;
}

LORA_INLINE std::vector<Index> Records::common_beginnings(std::span<const Index> sequences, Index cutoff_len) const {
  return data::common_beginnings(data::beginnings_of(learned(sequences, cutoff_len)), data::least_shared);
}

LORA_INLINE std::vector<data::Batch> Records::micro_batches(std::span<const Index> sequences,
                                                            const MicroBatchLimit& limit, Index first_place) const {
  std::vector<Index> places, lengths;
  std::vector<data::Example> examples = learned(sequences, limit.cutoff_len, &places);
  for (const data::Example& example : examples) lengths.push_back(std::ssize(example.tokens));
  std::vector<data::Batch> batches;
  for (const auto& group : limit.tokens == 0 ? data::group_by_places(places, limit.sequences)
                           : limit.shares
                               ? data::group_by_rows(data::beginnings_of(examples), limit.tokens, data::least_shared)
                               : data::group_by_tokens(lengths, limit.tokens)) {
    std::vector<data::Example> own;
    std::vector<Index> own_places;
    for (const Index i : group) {
      own.push_back(std::move(examples[static_cast<std::size_t>(i)]));
      own_places.push_back(first_place + places[static_cast<std::size_t>(i)]);
    }
    batches.emplace_back().append(own, own_places, limit.shares);
  }
  return batches;
}

LORA_INLINE Index Records::records_of(const data::Sequences& sequences) const {
  Index count = 0;
  for (Index i = 0; i < sequences.size(); ++i)
    count += sequences[i] == cut_.sequence_of(record_of(sequences[i]));  // a record's first one
  return count;
}

LORA_INLINE void Records::cut(const cpu::Threads& threads, const data::TextBlocks& blocks,
                              std::span<const Index> records) {
  const std::vector<std::vector<std::int32_t>> texts = tokens_of(threads, records);
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (!texts[i].empty()) cut_.add(records[i], texts[i], blocks.count(std::ssize(texts[i])));
}

LORA_INLINE std::vector<std::vector<std::int32_t>> Records::tokens_of(const cpu::Threads& threads,
                                                                      std::span<const Index> records) const {
  std::vector<std::vector<std::int32_t>> texts(records.size());
  std::vector<std::exception_ptr> errors(records.size());
  threads.parallel_items(std::ssize(records), [&](Index item) {
    const auto i = static_cast<std::size_t>(item);
    try {
      const data::Sample sample = dataset_[records[i]];
      if (sample.learned && !sample.unanswered) texts[i] = encoder_.whole_text(sample);
      if (std::ssize(texts[i]) <= encoder_.options().cutoff_len) texts[i] = {};
    } catch (...) {
      errors[i] = std::current_exception();
    }
  });
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return texts;
}

LORA_INLINE Taught taught_by(std::span<const data::Sample::Kind> kinds, const TextFiles& text) {
  using Kind = data::Sample::Kind;
  const auto have = [&](Kind kind) { return std::find(kinds.begin(), kinds.end(), kind) != kinds.end(); };
  if (const auto& chat = text.chat_template; chat && have(Kind::messages))
    return {std::string(chat->name()), {chat->text(), std::string(chat->end_of_turn())}};
  Taught taught{"", text.adapter};
  if (taught.files.eos_token.empty() && have(Kind::text) && text.tokenizer)
    taught.files.eos_token = data::end_of_text(*text.tokenizer);
  return taught;
}

LORA_INLINE void refuse_idle_keys(const settings::Config& config, std::span<const data::Sample::Kind> kinds) {
  using Kind = data::Sample::Kind;
  const auto expect = [&](std::string_view key, Kind kind, std::string_view records) {
    if (!config.from_command_line.contains(key) || std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return;
    fail<ConfigError>("key ", key, ": given, which has no effect here; allowed: with ", records);
  };
  expect("train_on_prompt", Kind::messages, "conversations");
  expect("train_on_last_turn_only", Kind::messages, "conversations");
  expect("template", Kind::messages, "conversations, which it writes");
  expect("add_generation_prompt", Kind::messages, "conversations");
  expect("text_column", Kind::text, "plain texts");
}

LORA_INLINE TextFiles text_files(const settings::Config& config, const io::Path& model,
                                 std::span<const data::Sample::Kind> kinds) {
  using Kind = data::Sample::Kind;
  const auto have = [&](Kind kind) { return std::find(kinds.begin(), kinds.end(), kind) != kinds.end(); };
  refuse_idle_keys(config, kinds);
  TextFiles text;
  if (auto tokenizer = find_tokenizer(model))
    text.tokenizer = std::make_shared<tokenizer::Tokenizer>(std::move(*tokenizer));
  if ((have(Kind::messages) || have(Kind::text)) && !text.tokenizer) fail_without_tokenizer(model);
  if (text.tokenizer) text.adapter = chat_files_of_adapter(config, *text.tokenizer);
  if (text.tokenizer && (have(Kind::messages) || config.template_name != "auto"))
    text.chat_template = template_of(config, *text.tokenizer, text.adapter);
  refuse_unused_by(text.chat_template, config);
  return text;
}

LORA_INLINE void expect_stage(const settings::Config& config, std::span<const data::DataFile> files,
                              std::span<const data::Sample::Kind> kinds) {
  using Kind = data::Sample::Kind;
  if (config.stage.empty()) return;
  const Kind other = config.stage == "pt" ? Kind::messages : Kind::text;
  const auto found = std::find(kinds.begin(), kinds.end(), other);
  if (found != kinds.end())
    fail<ConfigError>(std::string_view(config.stage_place), "key stage: given ", std::string_view(config.stage),
                      ", but ", std::string_view(files[static_cast<std::size_t>(found - kinds.begin())].path),
                      " begins with ", other == Kind::text ? "a text" : "a conversation",
                      "; allowed: pt with plain texts, sft with conversations, or none");
}

LORA_INLINE std::string class_field(const settings::Config& config) {
  return settings::any_curriculum(config) ? config.curriculum_field : std::string();
}

LORA_INLINE data::Dataset open_dataset(const settings::Config& config, std::span<const data::DataFile> files,
                                       std::optional<Index> max_samples, const data::RecordLists& lists,
                                       const std::string& label_field) {
  auto dataset = data::Dataset::open(files,
                                     {.text_column = config.text_column,
                                      .max_samples = max_samples,
                                      .skip_empty_answers = config.skip_empty_answers,
                                      .label_field = label_field,
                                      .seed = static_cast<std::uint64_t>(config.seed)},
                                     lists);
  expect_stage(config, files, dataset.kinds());
  return dataset;
}

LORA_INLINE Records encoded_records(const settings::Config& config, data::Dataset dataset, const TextFiles& text,
                                    Index vocab_size, bool for_training) {
  data::EncodeOptions encoding;
  encoding.cutoff_len = for_training ? settings::longest_cutoff(config) : std::numeric_limits<Index>::max();
  encoding.train_on_prompt = config.train_on_prompt;
  encoding.train_on_last_turn_only = config.train_on_last_turn_only;
  encoding.render = render_options(config);
  encoding.vocab_size = vocab_size;
  return {std::move(dataset), data::Encoder(text.tokenizer.get(), text.chat_template, std::move(encoding))};
}

}  // namespace lora::inputs
