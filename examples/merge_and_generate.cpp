// Merges an adapter into its base model, and lets both answer:   merge_and_generate MODEL ADAPTER OUTPUT_DIR PROMPT
#include <cstdio>
#include <exception>
#include <lora/lora.hpp>
#include <string>
#include <vector>

namespace {

using namespace lora;
using Device = cpu::Device;
using Decoder = model::Decoder<Device, float>;

/// The model's answer to one user turn, by greedy decoding. `config`: the adapter, if it has one, by whose template it
/// was taught.
std::string answer(Device& dev, Decoder& decoder, const model::Source& source, const Config& config,
                   const std::string& question) {
  const auto tokenizer = inputs::find_tokenizer(source.path());
  if (!tokenizer) inputs::fail_without_tokenizer(source.path());
  const auto chat = inputs::template_of(config, *tokenizer, inputs::chat_files_of_adapter(config, *tokenizer));
  data::RenderOptions options;
  options.add_generation_prompt = true;
  const std::vector<data::Message> turns = {{"user", question}};
  const std::string text = chat.render(turns, options).text;
  const std::vector<std::vector<std::int32_t>> prompts = {data::encode_rendering(*tokenizer, chat, text).ids};
  decode::GenerateOptions generate;
  generate.max_new_tokens = 40;
  generate.stop_ids = inputs::stop_ids(source, *tokenizer, chat);
  return tokenizer->decode(decode::generate(dev, decoder, prompts, generate)[0]);
}

void merge(const std::string& base, const std::string& adapter, const std::string& output, const std::string& prompt) {
  Device dev;
  const auto source = model::Source::open(base);
  Decoder decoder(dev, source);
  Config config;
  std::printf("base:    %s\n", answer(dev, decoder, source, config, prompt).c_str());

  const auto files = model::open_adapter(adapter);
  model::check_adapter(files, source.config());
  decoder.attach(dev, files.config);
  model::load_adapter(dev, decoder, files);
  config.adapter_name_or_path = adapter;
  std::printf("adapter: %s\n", answer(dev, decoder, source, config, prompt).c_str());

  io::create_folders(output);
  model::save_merged(dev, decoder, source, output, DType::f32, std::uint64_t{5} << 30);
  if (const auto tokenizer = inputs::find_tokenizer(base)) {
    const auto talk = run::talk_of(source, &*tokenizer, inputs::chat_files_of_adapter(config, *tokenizer));
    run::write_tokenizer(talk, output);
    model::write_stop_ids(source, talk.stop_ids, output);
  }
  const auto merged_source = model::Source::open(output);
  Decoder merged(dev, merged_source);
  std::printf("merged:  %s\n", answer(dev, merged, merged_source, {}, prompt).c_str());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) return std::fprintf(stderr, "usage: merge_and_generate MODEL ADAPTER OUTPUT_DIR PROMPT\n"), 2;
  merge(argv[1], argv[2], argv[3], argv[4]);
} catch (const std::exception& error) {
  return std::fprintf(stderr, "error: %s\n", error.what()), 1;
}
