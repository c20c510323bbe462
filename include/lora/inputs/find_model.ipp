#pragma once

#include "lora/core/config.hpp"
#include "lora/inputs/find_model.hpp"

namespace lora::inputs::detail {

LORA_INLINE std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// The folder that a variable names, in which "~" is the user's; nothing if it is not set.
LORA_INLINE std::optional<io::Path> environment_folder(const char* name) {
  const std::string text = environment(name), home = environment("HOME");
  if (text.empty()) return std::nullopt;
  if (home.empty() || (text != "~" && !text.starts_with("~/"))) return text;
  return home + text.substr(1);
}

LORA_INLINE std::optional<io::Path> hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const auto cache = environment_folder(name)) return cache;
  if (const auto home = environment_folder("HF_HOME")) return *home / "hub";
  if (const auto cache = environment_folder("XDG_CACHE_HOME")) return *cache / "huggingface" / "hub";
  if (const auto home = environment_folder("HOME")) return *home / ".cache" / "huggingface" / "hub";
  return std::nullopt;
}

/// Whether a text is a hub name, "name" or "owner/name", rather than a path.
LORA_INLINE bool is_hub_name(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (text.empty() || slash == 0 || slash == text.size() - 1) return false;
  if (slash != text.npos && text.find('/', slash + 1) != text.npos) return false;
  if (text.front() == '.' || text.front() == '~' || text.ends_with(".gguf")) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' || c == '/';
  });
}

/// The snapshot of a model in its folder of the cache: that which refs/main names or, without it, the only one.
/// Throws   IoError that says what is missing
LORA_INLINE io::Path snapshot_in(const io::Path& cached, const std::string& name) {
  const io::Path ref = cached / "refs" / "main", snapshots = cached / "snapshots";
  const auto refuse = [&](const auto&... what) {
    fail<IoError>(name, ": ", what..., "; to download it again: hf download ", name);
  };
  std::error_code ignored;
  if (io::is_there(ref)) {
    std::string revision = io::read_file(ref);
    while (!revision.empty() && std::isspace(static_cast<unsigned char>(revision.back()))) revision.pop_back();
    if (!revision.empty() && std::filesystem::is_directory(snapshots / revision, ignored)) return snapshots / revision;
    refuse("in the local cache ", ref.native(), " names the snapshot \"", revision, "\", which is not in ",
           snapshots.native());
  }
  std::vector<io::Path> found = io::entries_of(snapshots);
  std::erase_if(found, [&](const io::Path& path) { return !std::filesystem::is_directory(path, ignored); });
  if (found.size() != 1)
    refuse("the local cache has ", found.size(), " snapshots in ", snapshots.native(), " and no ", ref.native(),
           " that names one");
  return found.front();
}

/// Whether a folder holds the weights of a whole model.
LORA_INLINE bool holds_weights(const io::Path& folder) {
  return io::is_there(folder / "model.safetensors") || io::is_there(folder / "model.safetensors.index.json");
}

/// For the folder of a run, its final_model; other paths as they are.
LORA_INLINE io::Path last_of_run(const io::Path& path) {
  for (const char* name : {"config.json", "adapter_config.json", "tokenizer.json", "tokenizer.model"})
    if (io::is_there(path / name)) return path;
  std::error_code ignored;
  return std::filesystem::is_directory(path / "final_model", ignored) ? path / "final_model" : path;
}

}  // namespace lora::inputs::detail

namespace lora::inputs {

LORA_INLINE std::string name_of_result(const std::string& name) {
  std::error_code ignored;
  return std::filesystem::exists(name, ignored) ? detail::last_of_run(name).native() : name;
}

LORA_INLINE io::Path find_model(const std::string& name) {
  std::error_code ignored;
  if (std::filesystem::exists(name, ignored)) return detail::last_of_run(name);
  if (!detail::is_hub_name(name)) fail<IoError>(name, ": no such file or folder");
  std::string folder = "models--" + name;
  if (const auto slash = folder.find('/'); slash != folder.npos) folder.replace(slash, 1, "--");
  const auto cache = detail::hub_cache();
  if (!cache)
    fail<IoError>(name, ": no such file or folder, and no local cache to look in: HF_HUB_CACHE, HF_HOME, ",
                  "XDG_CACHE_HOME and HOME are not set");
  if (io::is_there(*cache / folder)) return detail::snapshot_in(*cache / folder, name);
  fail<IoError>(name, ": no such file or folder, and not in the local cache ", cache->native(),
                "; to download it: hf download ", name);
}

LORA_INLINE io::Path find_adapter(const std::string& name) {
  std::error_code ignored;
  const auto refuse = [&](const auto&... what) {
    fail<ConfigError>("key adapter_name_or_path: given ", name, what...);
  };
  if (name.find(',') != name.npos && !std::filesystem::exists(name, ignored))
    refuse(
        ", allowed: one adapter; hint: to use several, write one into the base with the command merge, and give what ",
        "comes of it as model_name_or_path with the next");
  const io::Path folder = find_model(name);
  if (io::is_there(folder / "adapter_config.json")) return folder;
  if (detail::holds_weights(folder))
    refuse(", but ", folder.native(),
           " holds a whole model; allowed: an adapter folder (a model is given as model_name_or_path)");
  const auto newest = io::newest_checkpoint(folder, "adapter_config.json");
  const std::string such = newest ? concat(", such as its newest checkpoint, ", newest->native()) : std::string();
  if (io::is_there(folder / "checkpoints"))
    refuse(", which is the folder of a run that has no final_model; allowed: an adapter folder", such);
  if (newest) refuse(", which holds the checkpoints of a run; allowed: an adapter folder", such);
  if (!std::filesystem::is_directory(folder, ignored)) refuse(", which is no folder; allowed: an adapter folder");
  refuse(", which holds no adapter_config.json; allowed: an adapter folder");
  return folder;
}

}  // namespace lora::inputs

namespace lora::inputs::detail {

LORA_INLINE void expect_whole_model(const io::Path& path, const std::string& name) {
  const auto refuse = [&](const auto&... what) {
    fail<ConfigError>("key model_name_or_path: given ", name,
                      path == io::Path(name) ? ", which" : ", whose final_model", what...);
  };
  if (holds_weights(path)) return;
  if (const io::Path file = path / "adapter_config.json"; io::is_there(file)) {
    const auto base = io::JsonFile(file)->get<std::string>("base_model_name_or_path").value_or("");
    refuse(" holds an adapter", base.empty() ? "" : " of the model ", base,
           "; allowed: a whole model, beside which an adapter is given as adapter_name_or_path");
  }
  if (io::is_there(path / "trained.safetensors"))
    refuse(" holds those tensors alone that train, as a checkpoint; allowed: a whole model, such as the run's ",
           "final_model");
  if (!io::is_there(path / "config.json") && io::is_there(path / "checkpoints"))
    refuse(" is the folder of a run that has no final_model; allowed: a whole model");
  if (const auto newest = io::newest_checkpoint(path, "adapter_config.json"); newest && path.extension() != ".gguf")
    refuse(" holds the checkpoints of a run; allowed: a whole model, beside which an adapter, such as the newest, ",
           newest->native(), ", is given as adapter_name_or_path");
}

}  // namespace lora::inputs::detail
