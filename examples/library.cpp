// The pieces of docs/library.md and library_models.md, task by task, as one program:   library MODEL DATASET OUTPUT_DIR
#include <atomic>
#include <cstdio>
#include <exception>
#include <lora/lora.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

lora::io::Path fine_tune(const std::string& model, const std::string& dataset, const std::string& output) {
  // [train]
  lora::Config config;
  config.model_name_or_path = model;
  config.dataset = {dataset};
  config.output_dir = output;
  config.lora_rank = 4;
  config.max_steps = 4;

  std::atomic<int> stop{0};  // may also be set by a signal handler or another thread
  lora::RunOptions options;
  options.stop = &stop;
  options.on_step = [&](const lora::StepMetrics& step) {
    if (step.loss < 1e-3) stop = 1;  // ends the run after this step, with a checkpoint
  };
  lora::Trainer trainer(config, options);          // what is wrong with settings, model or data is thrown here
  const lora::RunResult result = trainer.train();  // result.stopped_by is 0, or what `stop` held
  // [end]
  return result.final_model;
}

using namespace lora;
using Device = cpu::Device;
using Decoder = model::Decoder<Device, float>;

Decoder with_adapter(Device& dev, const model::Source& source, const std::string& folder) {
  // [adapter]
  Decoder decoder(dev, source);                    // weights stay in the mapped files of `source`
  const auto files = model::open_adapter(folder);  // as PEFT writes them, or this library
  decoder.attach(dev, files.config);               // B = 0: as without an adapter
  model::load_adapter(dev, decoder, files);
  // [end]
  return decoder;
}

void measure(const std::string& model, const std::string& adapter, const std::string& dataset) {
  // [evaluate]
  Config config;
  config.model_name_or_path = model;
  config.dataset = {dataset};
  Device dev;  // as many threads as this process may use
  const auto source = inputs::open_source(config);
  Decoder decoder = with_adapter(dev, source, adapter);

  auto data = inputs::open_dataset(config, config.dataset);
  const auto text = inputs::text_files(config, source.path(), data.kinds());
  const auto records = inputs::encoded_records(config, std::move(data), text, source.config().vocab_size, false);
  const auto totals = train::evaluate(dev, decoder, records.size(), [&](Index i) { return records[i]; },
                                      {.batch = config.per_device_eval_batch_size, .window = config.cutoff_len});
  std::printf("perplexity %.4f\n", totals.perplexity());
  // [end]
}

void answer(const std::string& model, const std::string& adapter, const std::string& question) {
  Device dev;
  const auto source = model::Source::open(inputs::find_model(model));
  Decoder decoder = with_adapter(dev, source, adapter);
  // [generate]
  const auto tokenizer = inputs::find_tokenizer(source.path());
  if (!tokenizer) inputs::fail_without_tokenizer(source.path());
  Config config;
  config.adapter_name_or_path = adapter;  // whose template, if it was taught by another than its base's, counts
  const auto chat = inputs::template_of(config, *tokenizer, inputs::chat_files_of_adapter(config, *tokenizer));
  data::RenderOptions rendering;
  rendering.add_generation_prompt = true;
  const std::vector<data::Message> turns = {{"user", question}};
  const std::string text = chat.render(turns, rendering).text;
  const std::vector<std::vector<std::int32_t>> prompts = {data::encode_rendering(*tokenizer, chat, text).ids};

  decode::GenerateOptions options;
  options.max_new_tokens = 8;
  options.sampling.temperature = 0.7;
  options.stop_ids = inputs::stop_ids(source, *tokenizer, chat, tokenizer::read_chat_files(adapter));
  options.vocabulary = tokenizer->vocab_size();
  const auto results = decode::generate(dev, decoder, prompts, options, 1, [&](std::size_t, std::int32_t token) {
    std::printf("[%d]", token);  // each token as soon as it is there
    return true;                 // false ends this answer
  });
  std::printf(" %s\n", tokenizer->decode(results[0], true).c_str());
  // [end]
}

void merge(const std::string& model, const std::string& adapter, const std::string& output) {
  Device dev;
  const auto source = model::Source::open(inputs::find_model(model));
  Decoder decoder = with_adapter(dev, source, adapter);
  // [merge]
  io::create_folders(output);
  model::save_merged(dev, decoder, source, output, DType::f32, std::uint64_t{5} << 30);  // shards of up to 5 GiB
  if (const auto tokenizer = inputs::find_tokenizer(source.path())) {  // with the learned template and end
    Config config;
    config.adapter_name_or_path = adapter;
    const auto talk = run::talk_of(source, &*tokenizer, inputs::chat_files_of_adapter(config, *tokenizer));
    run::write_tokenizer(talk, output);
    model::write_stop_ids(source, talk.stop_ids, output);
  }
  // [end]
}

void listen() {
  // [log]
  log::set_sink([](log::Level level, std::string_view sentence) {
    std::fprintf(stderr, "%s%.*s\n", level == log::Level::info ? "" : "! ", static_cast<int>(sentence.size()),
                 sentence.data());
  });
  // [end]
}

void steer(const std::string& model, const std::string& output) {
  // [steer]
  lora::data::RecordList list;  // instead of a file; a list holds records of one kind
  list.add(std::vector<lora::data::Message>{{"user", "Say A"}, {"assistant", "A"}});
  list.add(std::vector<lora::data::Message>{{"user", "Say B"}, {"assistant", "B"}});

  lora::Config config;
  config.model_name_or_path = model;
  config.dataset = {"answers"};  // the list's name, where a file's path would stand
  config.output_dir = output;
  config.val_size = 1;
  config.eval_steps = 2;
  config.max_steps = 6;

  lora::RunOptions options;
  options.records["answers"] = list;
  options.log = [](lora::log::Level, std::string_view line) {  // this run's log and progress
    std::printf("| %.*s\n", static_cast<int>(line.size()), line.data());
  };
  options.evaluates = [](lora::Running& running) { return running.state().step != 2; };  // leaves that one out
  options.on_evaluation = [](const lora::Evaluation& evaluation, lora::Running& running) {
    lora::with_model(running, [&](auto& dev, auto& decoder) {
      const std::vector<std::vector<std::int32_t>> prompts = {running.text().tokenizer->encode("Say").ids};
      const auto results = lora::decode::generate(dev, decoder, prompts, {.max_new_tokens = 4}, 1);
      std::printf("after step %d: %s\n", static_cast<int>(evaluation.step),
                  running.text().tokenizer->decode(results[0], true).c_str());
    });
    if (evaluation.loss() < 0.1 || evaluation.step == 4) running.finish();  // as if this step had been the last
  };
  const lora::RunResult result = lora::Trainer(config, options).train();
  // [end]
  std::printf("ended after step %d\n", static_cast<int>(result.metrics.steps));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return std::fprintf(stderr, "usage: library MODEL DATASET OUTPUT_DIR\n"), 2;
  listen();
  const std::string output = argv[3];
  const std::string adapter = fine_tune(argv[1], argv[2], output + "/run").native();
  steer(argv[1], output + "/steered");
  measure(argv[1], adapter, argv[2]);
  answer(argv[1], adapter, "Say A");
  merge(argv[1], adapter, output + "/merged");
} catch (const std::exception& error) {
  return std::fprintf(stderr, "error: %s\n", error.what()), 1;
}
