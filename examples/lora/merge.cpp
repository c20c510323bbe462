#include "lora/model/export/merge.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "commands.hpp"
#include "lora/inputs/paths.hpp"
#include "lora/io/files/atomic_folder.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/model/export/rotary_note.hpp"
#include "lora/run/talk.hpp"
#include "lora/settings/settings.hpp"
#include "open_model.hpp"

namespace {

using namespace lora;

/// Identifies a merged model: its files and their sizes.
constexpr const char* proof_file = "lora_merge.json";

io::Json files_of(const io::Path& folder) {
  io::Json files = io::Json::object();
  for (const io::Path& entry : io::entries_of(folder))
    files[entry.filename().native()] = std::filesystem::file_size(entry);
  return files;
}

/// What in a folder was not written by a merge, or empty. An empty folder may be used.
std::string stranger_in_merged(const io::Path& folder) {
  if (!io::is_folder(folder)) return "it is no folder";
  const auto entries = io::entries_of(folder);
  if (entries.empty()) return {};
  io::Json proof;
  try {
    if (io::is_file(folder / proof_file)) proof = io::read_json(folder / proof_file);
  } catch (const FormatError&) {  // not a merge's
  }
  const io::Json* files = proof.is_object() ? io::json_find(proof, "files") : nullptr;
  if (files == nullptr || !files->is_object())
    return concat("it holds ", entries.front().filename().native(), " and no ", proof_file, " of a merge");
  for (const io::Path& entry : entries) {
    const std::string name = entry.filename().native();
    if (name == proof_file) continue;
    const io::Json* size = io::json_find(*files, name);
    if (size == nullptr || !io::is_file(entry) || *size != std::filesystem::file_size(entry))
      return concat("it holds ", name, ", which no merge wrote there");
  }
  return {};
}

/// The absolute path of the folder, without a trailing slash.
io::Path place_of(const settings::Config& config) {
  io::Path place = std::filesystem::weakly_canonical(std::filesystem::absolute(config.output_dir));
  return place.has_filename() ? place : place.parent_path();
}

/// Throws   ConfigError for a folder that a merge may not replace
void expect_place(const settings::Config& config, const io::Path& place, const io::Path& base) {
  const auto refuse = [&](std::string_view what, std::string_view allowed) {
    fail<ConfigError>("key output_dir: given ", config.output_dir, ", ", what, "; allowed: ", allowed);
  };
  std::error_code none;
  if (std::filesystem::equivalent(place, base, none)) refuse("which is the base model's own folder", "another");
  if (std::filesystem::equivalent(place, inputs::find_adapter(config.adapter_name_or_path), none))
    refuse("which is the adapter's own folder", "another");
  for (const auto& [key, input] : inputs::paths_of(config, base))
    if (const auto path = io::input_within(input, place))
      refuse(concat("which holds ", path->native(), " of ", key), "another");
  if (!io::is_there(place)) return;
  if (const auto what = stranger_in_merged(place); !what.empty())
    refuse("which only merges may have written to: " + what, "a new or empty folder, or one that holds a merged model");
  if (!config.overwrite_output_dir && !io::entries_of(place).empty())
    refuse("which holds a model (model.safetensors)", "a folder without one, or overwrite_output_dir");
}

/// The README.md of a merged model that not every program computes right.
std::string card_of(const settings::Config& config, const std::string& note) {
  return concat("Merged from `", inputs::name_of_result(config.model_name_or_path), "` and the adapter `",
                inputs::name_of_result(config.adapter_name_or_path),
                "`.\n\n```python\nfrom transformers import AutoModelForCausalLM\n\n",
                "model = AutoModelForCausalLM.from_pretrained(\"path/to/this/folder\")\n```\n", note);
}

}  // namespace

int run_merge(Request& request) {
  const settings::Config& config = request.config;
  const auto source = inputs::open_source(config);
  const auto tokenizer = inputs::find_tokenizer(source.path());
  const auto precision = precision_named(config.dtype);
  const auto dtype = precision ? std::optional(stored_dtype(*precision)) : std::nullopt;
  (void)model::merged_config(source, dtype);  // throws before anything is written
  const auto talk =
      tokenizer ? run::talk_of(source, &*tokenizer, inputs::chat_files_of_adapter(config, *tokenizer)) : run::Talk();
  const io::Path place = place_of(config);
  expect_place(config, place, source.path());
  io::clear_killed(place);
  const auto stranger = [&](const io::Path& folder) -> std::string {
    if (auto what = stranger_in_merged(folder); !what.empty()) return what;
    const bool came = !config.overwrite_output_dir && !io::entries_of(folder).empty();
    return came ? "a model has come there meanwhile" : "";
  };
  const std::string note = model::rotary_note(source.config(), "model");
  std::optional<io::Lock> lock;  // of the folder that is being written: see io::clear_killed
  const auto write = [&](auto& dev, auto& decoder, const io::Path& folder) {
    lock.emplace(folder);
    model::save_merged(dev, decoder, source, folder, dtype, *settings::parse_size(config.max_shard_size));
    run::write_tokenizer(talk, folder);
    model::write_stop_ids(source, talk.stop_ids, folder);
    if (!note.empty()) io::write_file(folder / "README.md", std::string_view(card_of(config, note)));
    io::write_json(folder / proof_file,
                   io::json_object({{"base", inputs::name_of_result(config.model_name_or_path)},
                                    {"adapter", inputs::name_of_result(config.adapter_name_or_path)},
                                    {"files", files_of(folder)}}));
  };
  cpu::Device dev(static_cast<int>(config.threads.value_or(0)));
  auto decoder = open_decoder<float>(dev, source, config);
  io::write_whole_folder(place, stranger, [&](const io::Path& folder) { write(dev, decoder, folder); });
  if (!tokenizer) log::warn(source.path().native(), " has no tokenizer, and so has the merged model none");
  if (!note.empty())
    log::warn("the merged model has layers without rotary embedding, which transformers does not read from the ",
              "config.json of a ", source.config().model_type, " model; README.md beside it says how to switch it off");
  if (!talk.changes.chat_template.empty()) log::info("its chat template is the adapter's");
  if (!talk.stop_ids.empty())
    log::info("its answers end with ", talk.changes.eos_token, ", as the adapter's do: generation_config.json says so");
  log::info("the merged model is in ", config.output_dir);
  return 0;
}
