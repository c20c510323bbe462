#pragma once

#include <algorithm>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/log.hpp"
#include "lora/data/batch.hpp"
#include "lora/data/dataset.hpp"
#include "lora/data/encode.hpp"
#include "lora/data/grouping.hpp"
#include "lora/data/order.hpp"
#include "lora/io/tokenizer.hpp"
#include "lora/train/model_files.hpp"

namespace lora::train {

/// What a micro-batch holds: so many sequences, or, if `tokens` is not 0, at most so many tokens.
struct MicroBatchLimit {
  Index sequences = 1;
  Index tokens = 0;
};

/// The setting, or about the size from which products run at full speed. Who names a number of sequences gets it.
inline MicroBatchLimit micro_batch_limit(const Config& config) {
  constexpr Index enough = 1024;
  if (config.max_tokens_per_micro_batch) return {config.train_batch_size(), *config.max_tokens_per_micro_batch};
  return {config.train_batch_size(), config.per_device_train_batch_size ? 0 : enough};
}

/// Names the fields of records that play no part, of those that were read and not named before.
inline void warn_of_unused_fields(const data::Dataset& dataset) {
  const auto fields = dataset.take_unused_fields();
  std::string list;
  for (std::size_t i = 0; i < fields.size() && i < 20; ++i) list += (i > 0 ? ", " : "") + fields[i];
  if (fields.size() > 20) list += ", ...";
  if (!fields.empty()) log::warn(dataset.name(), ": fields of records that are not used: ", list);
}

/// The records of a run as tokens, encoded where they are asked for.
class Records {
 public:
  Records(data::Dataset dataset, data::Encoder encoder) : dataset_(std::move(dataset)), encoder_(std::move(encoder)) {}

  Index size() const { return dataset_.size(); }
  const data::Dataset& dataset() const { return dataset_; }
  const data::Encoder& encoder() const { return encoder_; }
  data::Example operator[](Index record) const { return encoder_(dataset_[record]); }
  /// "file:line"
  std::string where(Index record) const { return dataset_[record].where; }

  /// What `records` add up to, found on the device's threads. All are read and rendered, so that what is malformed
  /// shows; of more than `most`, only that many, evenly spread, are encoded, and those that look longest, unless none
  /// has a label or the tokenizer has ids past the model's vocabulary. Warns of fields that are not used and of empty
  /// answers.
  /// Throws   FormatError of the first that is malformed
  template <class D>
  data::EncodeSummary survey(D& dev, std::span<const Index> records, std::size_t most = 16384) const {
    constexpr std::size_t chunk = 1024;
    constexpr std::size_t looked_at = 64;  // of those that look longest
    const std::size_t all = records.size(), encoded = encoder_.may_pass_vocabulary() ? all : std::min(most, all);
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
      dev.parallel_items(static_cast<Index>(count), [&](Index item) {
        const auto i = static_cast<std::size_t>(item);
        try {
          const data::Sample sample = dataset_[records[begin + i]];
          if (is_encoded(begin + i)) {
            examples[i] = encoder_(sample);
          } else {
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
        } else {
          summary.pass_over(unanswered[i] != 0);
          longest.emplace_back(sizes[i], records[begin + i]);
        }
      }
      std::sort(longest.begin(), longest.end(), std::greater<>());
      if (longest.size() > looked_at) longest.resize(looked_at);
    }
    for (const auto& [size, record] : longest) summary.reaches(static_cast<Index>((*this)[record].tokens.size()));
    // Labels so rare that no encoded record has one.
    if (summary.labelled() == 0 && !summary.complete()) return survey(dev, records, all);
    warn_of_unused_fields(dataset_);
    if (summary.unanswered() > 0)
      log::warn(dataset_.name(), ": ", summary.unanswered(), " of ", summary.records(),
                " records have an empty answer and are left out");
    return summary;
  }

  /// The samples [begin, end) of a run, split into micro-batches: few and even ones where tokens limit them. Each
  /// sequence keeps its place in the step, on which alone its dropout depends. A record without labels leaves its place
  /// empty.
  std::vector<data::Batch> micro_batches(data::Order& order, data::StepPlan::Range samples,
                                         const MicroBatchLimit& limit) const {
    std::vector<data::Example> examples;
    std::vector<Index> places, lengths;
    for (Index sample = samples.begin; sample < samples.end; ++sample) {
      data::Example example = (*this)[order[sample]];
      if (example.labelled() == 0) continue;
      places.push_back(sample - samples.begin);
      lengths.push_back(static_cast<Index>(example.tokens.size()));
      examples.push_back(std::move(example));
    }
    std::vector<data::Batch> batches;
    for (const auto& group : limit.tokens > 0 ? data::group_by_tokens(lengths, limit.tokens)
                                              : data::group_by_places(places, limit.sequences)) {
      data::Batch& batch = batches.emplace_back();
      for (const Index i : group) {
        const auto at = static_cast<std::size_t>(i);
        batch.append(examples[at], places[at]);
      }
    }
    return batches;
  }

 private:
  data::Dataset dataset_;
  data::Encoder encoder_;
};

/// What turns records into tokens; token records need neither.
struct TextFiles {
  std::shared_ptr<const io::Tokenizer> tokenizer{};
  std::optional<data::ChatTemplate> chat_template{};
};

/// Opens what records of these kinds need.
/// Throws   IoError, FormatError, ConfigError
inline TextFiles text_files(const Config& config, const io::Path& model, std::span<const data::Sample::Kind> kinds) {
  using Kind = data::Sample::Kind;
  const auto have = [&](Kind kind) { return std::find(kinds.begin(), kinds.end(), kind) != kinds.end(); };
  TextFiles text;
  if (auto tokenizer = find_tokenizer(model)) text.tokenizer = std::make_shared<io::Tokenizer>(std::move(*tokenizer));
  if ((have(Kind::messages) || have(Kind::text)) && !text.tokenizer) fail_without_tokenizer(model);
  if (text.tokenizer && (have(Kind::messages) || config.template_name != "auto"))
    text.chat_template = data::choose_template(config.template_name, *text.tokenizer);
  return text;
}

/// The records of these files.
/// Throws   IoError, FormatError
inline data::Dataset open_dataset(const Config& config, const std::vector<std::string>& files,
                                  std::optional<Index> max_samples = std::nullopt) {
  return data::Dataset::open(
      files,
      {.text_column = config.text_column, .max_samples = max_samples, .skip_empty_answers = config.skip_empty_answers});
}

/// Records for training, or for evaluation, which reads long ones in windows instead of cutting them. The tokenizer
/// must outlive them.
inline Records encoded_records(const Config& config, data::Dataset dataset, const TextFiles& text, Index vocab_size,
                               bool for_training) {
  data::EncodeOptions encoding;
  encoding.cutoff_len = for_training ? config.cutoff_len : std::numeric_limits<Index>::max();
  encoding.train_on_prompt = config.train_on_prompt;
  encoding.train_on_last_turn_only = config.train_on_last_turn_only;
  encoding.render = render_options(config);
  encoding.vocab_size = vocab_size;
  return {std::move(dataset), data::Encoder(text.tokenizer.get(), text.chat_template, std::move(encoding))};
}

}  // namespace lora::train
