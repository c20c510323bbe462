#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "lora/core/error.hpp"
#include "lora/data/records/dataset.hpp"
#include "lora/inputs/records.hpp"
#include "lora/inputs/sampling.hpp"
#include "lora/io/files/atomic_folder.hpp"
#include "lora/io/files/read_file.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/settings/settings.hpp"
#include "lora/train/answers.hpp"
#include "open_model.hpp"
#include "outputs.hpp"
#include "prompt_options.hpp"
#include "standard_output.hpp"

namespace {

using namespace lora;

std::vector<data::Sample> read_samples(const settings::Config& config) {
  std::vector<data::Sample> samples;
  if (config.prompt) {
    data::Sample sample;
    sample.messages.push_back({"user", *config.prompt});
    sample.where = "prompt";
    samples.push_back(std::move(sample));
  } else {
    const auto records = data::Dataset::open(config.dataset, {.text_column = config.text_column,
                                                              .max_samples = config.max_samples,
                                                              .need_answer = false,
                                                              .seed = static_cast<std::uint64_t>(config.seed)});
    inputs::refuse_idle_keys(config, records.kinds());
    for (Index i = 0; i < records.size(); ++i) samples.push_back(records[i]);
    inputs::warn_of_unused_fields(records);
  }
  return samples;
}

/// Whether a file holds answers, as their first line tells, or nothing. A line of over 16 MiB is somebody else's.
bool holds_answers(const io::Path& path) {
  constexpr std::size_t most = std::size_t{16} << 20;
  io::FileWindow file(path);
  const auto line = file.line(most);
  const std::string_view first = line ? *line : file.look(most);
  if (first.empty()) return true;
  try {
    const io::Json json = io::parse_json(first, path.native());
    return json.is_object() && json.contains("prompt") && json.contains("predict");
  } catch (const FormatError&) {
    return false;
  }
}

}  // namespace

int run_generate(Request& request) {
  const settings::Config& config = request.config;
  const auto source = inputs::open_source(config);
  const auto tokenizer = inputs::find_tokenizer(source.path());
  if (!tokenizer) inputs::fail_without_tokenizer(source.path());
  const bool from_prompt = config.prompt.has_value();
  const auto samples = read_samples(config);
  const bool asks = std::any_of(samples.begin(), samples.end(),
                                [](const data::Sample& sample) { return sample.kind == data::Sample::Kind::messages; });
  const tokenizer::ChatFiles taught = inputs::chat_files_of_adapter(config, *tokenizer);
  std::optional<data::ChatTemplate> chat;
  if (asks) chat = inputs::template_of(config, *tokenizer, taught);
  inputs::refuse_unused_by(chat, config);
  const data::Encoder encoder(&*tokenizer, chat, prompt_options(config, source));

  decode::GenerateOptions options;
  options.max_new_tokens = config.answer_tokens();
  options.num_return_sequences = config.num_return_sequences;
  options.shares = config.shares_prefixes();
  options.sampling = inputs::sampling_of(config, source);
  options.stop_ids = inputs::stop_ids(source, *tokenizer, chat, taught);

  std::unique_ptr<io::AtomicFile> file;
  std::optional<io::Lock> lock;  // of the file that is being written: see io::clear_killed
  if (!config.output_file.empty()) {
    expect_no_input("output_file", config.output_file, request, source.path());
    if (io::is_file(config.output_file) && !holds_answers(config.output_file))
      fail<ConfigError>("key output_file: given ", config.output_file,
                        ", which generate did not write; hint: give another file, or move that away");
    io::clear_killed(config.output_file);
    file = std::make_unique<io::AtomicFile>(config.output_file);
    if (!file->direct()) {
      lock.emplace(file->partial(), io::Lock::Of::file);
      if (!io::is_there(file->partial()))
        fail<IoError>("another run with the output_file ", config.output_file, " began at the same time");
    }
  }
  const auto write = [&](const std::string& text) {
    if (file) {
      file->write(std::string_view(text));
    } else {
      print_result(text);
    }
  };
  const Index each = config.num_return_sequences;
  train::CutAnswers cut;
  const auto say = [&, said = Index{0}](const data::Sample& sample, const train::Answer& answer) mutable {
    const Index number = said++ % each;
    cut.add(sample, answer);
    if (from_prompt && !file) {
      if (each > 1) write(concat("--- answer ", number + 1, " of ", each, "\n"));
      return write((config.stream ? "" : answer.text) + "\n");
    }
    io::Json line = {{"prompt", data::prompt_of(sample, *tokenizer)}, {"predict", answer.text}};
    if (each > 1) line["index"] = number;
    if (auto label = sample.answer(chat && chat->quotes_texts()); !label.empty()) line["label"] = std::move(label);
    write(io::to_text(line, -1) + "\n");
  };
  inputs::with_device(config, [&](auto& dev) {
    with_decoder(dev, source, config, [&](auto& decoder) {
      run::CountProgress answering("answering", "records", std::ssize(samples) * each);
      std::function<void(const std::string&)> hear;
      if (config.stream) hear = write;
      train::answer_all(dev, decoder, *tokenizer, encoder, samples, options, config.stop, answering, say, hear);
      cut.warn_once(source.config());
    });
  });
  if (file) file->commit();
  return 0;
}
