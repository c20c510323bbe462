#include "lora/model/merge.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "commands.hpp"
#include "lora/io/file.hpp"
#include "lora/train/settings.hpp"
#include "open_model.hpp"

namespace {

using namespace lora;

/// A model's own files must not stay beside a new one's: a loader would read both.
void clear_output(const io::Path& folder, bool overwrite) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return;
  std::vector<io::Path> old;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().native().starts_with("model") &&
        entry.path().native().find(".safetensors") != std::string::npos)
      old.push_back(entry.path());
  if (old.empty()) return;
  if (!overwrite)
    fail<ConfigError>("key output_dir: given ", folder.native(), ", which holds a model (",
                      old.front().filename().native(), "), allowed: a folder without one, or overwrite_output_dir");
  for (const io::Path& path : old) io::remove_file(path);
}

std::optional<DType> dtype_of_key(const std::string& name) {
  if (name == "float32") return DType::f32;
  if (name == "bfloat16") return DType::bf16;
  return std::nullopt;
}

}  // namespace

int run_merge(Request& request) {
  const train::Config& config = request.config;
  const auto source = train::open_source(config);
  const auto tokenizer = train::find_tokenizer(source.path());
  const io::Path output = config.output_dir;
  const auto dtype = dtype_of_key(config.dtype);
  (void)model::merged_config(source, dtype);  // what it refuses, before anything is written
  cpu::Device dev(threads_of(config));
  auto decoder = open_decoder<float>(dev, source, config);
  io::create_folders(output);
  const io::Lock lock(output);
  std::error_code none;
  if (!std::filesystem::equivalent(output, source.path(), none)) clear_output(output, config.overwrite_output_dir);
  model::save_merged(dev, decoder, source, output, dtype, *train::parse_size(config.max_shard_size));
  if (tokenizer) tokenizer->save(output);
  if (!tokenizer) log::warn(source.path().native(), " has no tokenizer, and so has the merged model none");
  const io::Path generation = source.path() / "generation_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(generation, ignored)) io::copy_file(generation, output / "generation_config.json");
  log::info("the merged model is in ", output.native());
  return 0;
}
