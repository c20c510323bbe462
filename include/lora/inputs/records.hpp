#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/log.hpp"
#include "lora/cpu/runtime/threads.hpp"
#include "lora/data/batches/batch.hpp"
#include "lora/data/batches/cut_texts.hpp"
#include "lora/data/batches/encode.hpp"
#include "lora/data/batches/grouping.hpp"
#include "lora/data/batches/text_blocks.hpp"
#include "lora/data/records/dataset.hpp"
#include "lora/data/sampling/curriculum.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/io/files/path.hpp"
#include "lora/settings/stage_lists.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace lora::inputs {

/// The size of a micro-batch: a number of sequences or, if `tokens` is not 0, a maximum number of tokens.
struct MicroBatchLimit {
  Index sequences = 1;
  Index tokens = 0;
  Index cutoff_len = std::numeric_limits<Index>::max();  ///< longer sequences are cut off there
  bool shares = false;  ///< beginnings that sequences have in common lie in a micro-batch once; `tokens` counts them so
  bool usual = false;   ///< nobody has said how many tokens: what sequences usually have in common comes on top
};

/// From the settings; by default about the number of tokens from which matrix products reach full speed.
MicroBatchLimit micro_batch_limit(const settings::Config& config);
/// The same for sequences that usually have a beginning of so many tokens in common: where nobody has said how many
/// tokens a micro-batch has, nor how much memory, as many stay beside that.
MicroBatchLimit with_room_for(MicroBatchLimit limit, Index beginning);

/// What sharing leaves of micro-batches.
struct Sharing {
  double rows = 1;     ///< most rows of one, of its sequences' tokens
  double labeled = 0;  ///< most labeled rows of one that shares some, of its rows
};

/// Warns about unused fields of the records read so far, each once.
void warn_of_unused_fields(const data::Dataset& dataset);

/// The records of a run as token sequences, encoded on access. Each record is one sequence, except for long texts after
/// cut_texts.
class Records {
 public:
  Records(data::Dataset dataset, data::Encoder encoder) : dataset_(std::move(dataset)), encoder_(std::move(encoder)) {}

  /// Cuts texts of more than cutoff_len tokens into blocks, so that nothing is truncated. Their tokens are kept in
  /// memory, since the number of blocks must be known before the first step.
  /// Throws   FormatError for the first malformed record
  void cut_texts(const cpu::Threads& threads);

  /// Sequences.
  Index size() const { return cut_.sequence_of(dataset_.size()); }
  /// The sequences of these records, in their order.
  data::Sequences sequences_of(const data::Sequences& records) const { return cut_.sequences_of(records); }

  Index record_of(Index sequence) const { return cut_.record_of(sequence); }

  /// Whether some are blocks of longer texts.
  bool has_blocks() const { return !cut_.empty(); }

  const data::Dataset& dataset() const { return dataset_; }
  const data::Encoder& encoder() const { return encoder_; }
  data::Example operator[](Index sequence) const;
  /// "file:line"
  std::string where(Index record) const { return dataset_[record].where; }

  /// The classes of these sequences, by the labels of their records. Reads all records.
  /// Throws   FormatError for the first malformed record
  data::SequenceClasses classes(const cpu::Threads& threads, const data::Sequences& sequences) const;

  /// Totals of these sequences, computed on these threads. All are read and rendered, so that malformed records
  /// are found; if there are more than `most`, only that many, evenly spread, and those that look longest are encoded,
  /// unless none has a label or the tokenizer has ids past the model's vocabulary. Warns about unused fields and empty
  /// answers.
  /// Throws   FormatError for the first malformed record
  data::EncodeSummary survey(const cpu::Threads& threads, const data::Sequences& sequences,
                             std::size_t most = 16384) const;

  /// Of each of these sequences, cut off, that has labels, the tokens that it has in common with another of them at its
  /// beginning, before the labels.
  std::vector<Index> common_beginnings(std::span<const Index> sequences, Index cutoff_len) const;

  /// Neighboring sequences of a step, split into micro-batches: as few and as even as possible if tokens limit them,
  /// else each of the next limit.sequences, wherever in the step they begin.
  /// Each keeps its place in the step, on which alone its dropout depends; `first_place` is the first one's. A sequence
  /// without labels is left out, but keeps its place.
  std::vector<data::Batch> micro_batches(std::span<const Index> sequences, const MicroBatchLimit& limit,
                                         Index first_place = 0) const;

 private:
  data::TextBlocks text_blocks() const { return {encoder_.options().cutoff_len, encoder_.text_opening()}; }
  bool is_block(Index sequence) const { return cut_.is_block(sequence); }
  /// The number of records that these sequences belong to.
  Index records_of(const data::Sequences& sequences) const;

  /// Those of these sequences, cut off, that have labels. `places`, if not null, gets theirs.
  std::vector<data::Example> learned(std::span<const Index> sequences, Index cutoff_len,
                                     std::vector<Index>* places = nullptr) const;

  void cut(const cpu::Threads& threads, const data::TextBlocks& blocks, std::span<const Index> records);

  /// The tokens of those of these texts that are longer than cutoff_len and have a loss.
  std::vector<std::vector<std::int32_t>> tokens_of(const cpu::Threads& threads, std::span<const Index> records) const;

  data::Dataset dataset_;
  data::Encoder encoder_;
  data::CutTexts cut_;
};

/// Throws   ConfigError naming the longest record that was found, where the model can't compute a sequence of it, which
///          has `cutoff_len` tokens at most
void expect_supported_records(const model::Config& shape, const Records& records, const data::EncodeSummary& found,
                              Index cutoff_len);

/// The tokenizer and template that records need; token records need neither.
struct TextFiles {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer{};
  std::optional<data::ChatTemplate> chat_template{};
  tokenizer::ChatFiles adapter{};  ///< of the adapter that a run starts from
};

/// What training teaches about conversations, as far as it is known.
struct Taught {
  std::string template_name{};   ///< that records are written by; empty if none is a conversation
  tokenizer::ChatFiles files{};  ///< the template, and what ends an answer or a text
};

/// What records of these kinds teach and, where they say nothing, the adapter that a run starts from has learned.
Taught taught_by(std::span<const data::Sample::Kind> kinds, const TextFiles& text);

/// Rejects command-line keys that have no effect on records of these kinds. In a file, or in code, they may be meant
/// for other data.
/// Throws   ConfigError
void refuse_idle_keys(const settings::Config& config, std::span<const data::Sample::Kind> kinds);

/// Opens the tokenizer and template that records of these kinds need.
/// Throws   IoError, FormatError, ConfigError
TextFiles text_files(const settings::Config& config, const io::Path& model, std::span<const data::Sample::Kind> kinds);

/// The field that names the class of a record to train on; empty where no stage has a curriculum.
std::string class_field(const settings::Config& config);

/// Throws   ConfigError where a file of settings calls the records otherwise: each file's kind
void expect_stage(const settings::Config& config, std::span<const data::DataFile> files,
                  std::span<const data::Sample::Kind> kinds);

/// The records of these files or, where a name is that of one of `lists`, of that list. `label_field`:
/// class_field's, of records to train on.
/// Throws   IoError, FormatError; ConfigError as expect_stage
data::Dataset open_dataset(const settings::Config& config, std::span<const data::DataFile> files,
                           std::optional<Index> max_samples = std::nullopt, const data::RecordLists& lists = {},
                           const std::string& label_field = {});

/// Records for training, or for evaluation, which reads long records in windows instead of truncating them. The
/// tokenizer must outlive them.
Records encoded_records(const settings::Config& config, data::Dataset dataset, const TextFiles& text, Index vocab_size,
                        bool for_training);

}  // namespace lora::inputs

#ifndef LORA_COMPILED
#  include "lora/inputs/records.ipp"
#endif
