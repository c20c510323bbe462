#pragma once

#include "lora/core/config.hpp"
#include "lora/settings/dataset_info.hpp"

namespace lora::settings::detail {

inline bool is_file(const io::Path& path) {
  std::error_code unreadable;  // reported by what opens it
  return std::filesystem::is_regular_file(path, unreadable);
}

inline bool is_folder(const io::Path& path) {
  std::error_code unreadable;  // reported by what opens it
  return std::filesystem::is_directory(path, unreadable);
}

/// The entries of a dataset_info.json.
class DatasetInfo {
 public:
  /// Throws   IoError, FormatError
  explicit DatasetInfo(const io::Path& folder) : folder_(folder), file_(path_in(folder)) {}

  static io::Path path_in(const io::Path& folder) { return folder / "dataset_info.json"; }
  static bool is_in(const io::Path& folder) { return io::is_there(path_in(folder)); }

  std::string path() const { return path_in(folder_).native(); }
  bool has(std::string_view name) const { return file_->has(name); }

  /// The file of a name that there is.
  data::DataFile operator[](const std::string& name) {
    const io::JsonView entry = *file_->find(name);
    if (!entry.json().is_object()) entry.fail("expected an object");
    expect_fields(entry, {"file_name", "formatting", "columns", "tags", "num_samples", "ranking", "split", "subset",
                          "folder", "hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name"});
    for (const char* part : {"subset", "folder"}) note_idle(entry, part, name);
    if (entry.get<bool>("ranking").value_or(false))
      entry.fail("\"ranking\" is true: preference data, which are not supported; expected records with one answer");
    data::DataFile file(path_of(entry));
    file.name = name;
    if (const auto most = entry.get<Index>("num_samples")) {
      if (*most < 1) entry.fail("\"num_samples\" is ", *most, "; expected 1 or more");
      file.num_samples = most;
    }
    take_split(entry, file);
    read_columns(entry, file.columns);
    return file;
  }

  /// What was read of entries and says nothing, as sentences to log.
  std::string take_notes() { return std::exchange(notes_, {}); }

  [[noreturn]] void fail_unknown(std::string_view key, const std::string& given, std::string_view name) const {
    std::vector<std::string_view> names;
    std::string list;
    for (const auto& [known, entry] : io::json_fields(file_->json())) {
      names.emplace_back(known);
      if (names.size() <= 40) list += concat(list.empty() ? "" : ", ", std::string_view(known));
    }
    const std::string_view nearest = nearest_name(name, names);
    fail<ConfigError>("key ", key, ": given ", std::string_view(given), ", which is no file, and no name in ", path(),
                      "; allowed: a path, or one of ", std::string_view(list), names.size() > 40 ? ", ..." : "",
                      nearest.empty() ? "" : "; nearest: ", nearest);
  }

 private:
  /// Of a data set of a hub these say which files are meant; LLaMA-Factory reads them of no other.
  void note_idle(const io::JsonView& entry, const char* part, const std::string& name) {
    const auto given = entry.get<std::string>(part);
    if (!given) return;
    for (const char* place : {"hf_hub_url", "ms_hub_url", "om_hub_url", "script_url"})
      if (entry.has(place))
        entry.fail("\"", part, "\" is ", std::string_view(*given), ", of the data set at \"", place,
                   "\"; expected \"file_name\" alone, with the file that it means");
    notes_ += concat("; ", part, " ", std::string_view(*given), " of ", std::string_view(name),
                     " says nothing of a file, as in LLaMA-Factory");
  }

  std::string path_of(const io::JsonView& entry) const {
    const auto name = entry.get<std::string>("file_name");
    if (name && name->empty()) entry.fail("\"file_name\" is empty");
    // A hub's data set that was fetched has its file's name as well.
    if (name && (is_file(folder_ / *name) || is_folder(folder_ / *name))) return (folder_ / *name).native();
    for (const char* place : {"hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name"})
      if (const auto hub = entry.get<std::string>(place))
        entry.fail("\"", place, "\" is ", std::string_view(*hub),
                   ", and nothing is downloaded; expected \"file_name\" with the name of its file in ",
                   folder_.native());
    if (!name) entry.fail("\"file_name\" is missing");
    if (io::is_there(folder_ / *name))
      entry.fail("\"file_name\" is ", std::string_view(*name), ", which is neither a file nor a folder of files");
    entry.fail("\"file_name\" is ", std::string_view(*name), ", and there is no such file in ", folder_.native());
  }

  static void read_columns(const io::JsonView& entry, data::RecordColumns& columns) {
    const std::string formatting = entry.get<std::string>("formatting").value_or("alpaca");
    const bool turns = formatting == "sharegpt" || formatting == "openai";
    if (!turns && formatting != "alpaca")
      entry.fail("\"formatting\" is ", std::string_view(formatting), "; expected alpaca, sharegpt or openai");
    take_names(entry, "columns", columns.columns);
    take_names(entry, "tags", columns.tags);
    for (const auto& [name, field] : columns.columns) {
      for (const std::string_view other : {"images", "videos", "audios"})
        if (name == other) entry.fail("the column ", other, "; expected none: records of text alone are supported");
      for (const std::string_view other : {"chosen", "rejected", "kto_tag"})
        if (name == other)
          entry.fail("the column ", other,
                     ": preference data, which are not supported; expected records with one answer");
    }
    if (const auto wrong = offence(columns)) entry.fail("columns or tags with ", std::string_view(*wrong));
    const auto names = [&](std::string_view column) {
      return std::any_of(columns.columns.begin(), columns.columns.end(),
                         [&](const auto& named) { return named.first == column; });
    };
    if (turns ? names("prompt") : names("messages") || !columns.tags.empty())
      entry.fail("\"formatting\" is ", std::string_view(formatting), ", which has no ",
                 turns ? "prompt" : "messages and tags", "; expected ", turns ? "alpaca" : "sharegpt");
  }

  io::Path folder_;
  io::JsonFile file_;
  std::string notes_;
};

/// What stands behind the last # as a number of records, and what before it.
LORA_INLINE std::optional<std::pair<std::string, Index>> split_count(const std::string& text) {
  const std::size_t mark = text.rfind('#');
  if (mark == text.npos || mark == 0) return std::nullopt;
  const auto count = parse_number<Index>(std::string_view(text).substr(mark + 1));
  if (!count || *count < 1) return std::nullopt;
  return std::pair{text.substr(0, mark), *count};
}

/// Finds files that are given by names.
class DatasetFinder {
 public:
  explicit DatasetFinder(const io::Path& dataset_dir) : dataset_dir_(dataset_dir) {}

  bool has_used_dataset_dir() const { return used_; }
  const std::string& notes() const { return notes_; }

  /// Replaces a name by its file; whether it was one.
  bool find(data::DataFile& file, std::string_view key) {
    const std::string given = file.path;
    std::string name = given;
    std::optional<Index> most;
    if (!is_file(given) && !is_folder(given))
      if (const auto part = split_count(given)) std::tie(name, most) = *part;
    if (is_file(name)) {
      expect_one_meaning(name, key);
      file.path = name;
      if (most && !file.num_samples) file.num_samples = most;
      return false;
    }
    const io::Path path = name;
    DatasetInfo* info = info_in(dataset_dir_);
    if (info != nullptr && info->has(name)) {
      used_ = true;
    } else if (path.has_parent_path()) {
      info = info_in(path.parent_path());
      name = path.filename().native();
    }
    const bool is_name = info != nullptr && info->has(name);
    if (!is_name && is_folder(path)) {
      file.path = path.native();
      if (most && !file.num_samples) file.num_samples = most;
      return false;
    }
    if (info == nullptr || name.empty()) {
      expect_path(given, key);
      return false;  // opening it says what is wrong
    }
    if (!is_name) info->fail_unknown(key, given, name);
    data::DataFile found = (*info)[name];
    notes_ += info->take_notes();
    if (!file.split.empty()) found.split = file.split;
    if (most) found.num_samples = most;
    if (file.num_samples) found.num_samples = file.num_samples;
    if (file.max_samples) found.keep(*file.max_samples);
    found.weight = file.weight;
    if (!file.name.empty()) found.name = file.name;
    if (!file.columns.empty()) found.columns = file.columns;
    file = std::move(found);
    return true;
  }

 private:
  // Null where there is none. Each is read once, however many names it has.
  DatasetInfo* info_in(const io::Path& folder) {
    if (!DatasetInfo::is_in(folder)) return nullptr;
    return &read_.try_emplace(folder, folder).first->second;
  }

  // What has no ending was meant as a name, if there is no file.
  void expect_path(const std::string& given, std::string_view key) {
    const io::Path path = given;
    if (given.empty() || given.starts_with('/') || given.starts_with('.') || path.has_extension() || io::is_there(path))
      return;
    if (const DatasetInfo* info = info_in(dataset_dir_)) info->fail_unknown(key, given, given);
    const std::string own = path.has_parent_path() ? DatasetInfo::path_in(path.parent_path()).native() : "";
    fail<ConfigError>("key ", key, ": given ", std::string_view(given), ", which is no file, and no name: there is no ",
                      DatasetInfo::path_in(dataset_dir_).native(), own.empty() ? "" : " and no ", std::string_view(own),
                      "; allowed: a path, or a name in the dataset_info.json of dataset_dir");
  }

  // A text that can be nothing but a path begins with its folder; names have no ending, and what a dataset_info.json is
  // worth is no matter of files that have one.
  void expect_one_meaning(const std::string& name, std::string_view key) {
    if (name.starts_with('/') || name.starts_with('.') || io::Path(name).has_extension()) return;
    const DatasetInfo* const info = info_in(dataset_dir_);
    if (info != nullptr && info->has(name))
      fail<ConfigError>("key ", key, ": given ", std::string_view(name), ", which is a file, and a name in ",
                        info->path(), "; allowed: ./", std::string_view(name), " for the file, or ",
                        (dataset_dir_ / name).native(), " for the name");
  }

  io::Path dataset_dir_;
  std::map<io::Path, DatasetInfo> read_;
  bool used_ = false;
  std::string notes_;
};

}  // namespace lora::settings::detail

namespace lora::settings {

LORA_INLINE std::string find_datasets(Config& config, Command command, const data::RecordLists& lists) {
  std::string names;
  if (config.uses_dataset_dir || !(find_key("dataset")->commands & command)) return names;
  detail::DatasetFinder finder(config.dataset_dir);
  const auto find = [&](std::vector<data::DataFile>& files, std::string_view key, bool may_have_name) {
    for (data::DataFile& file : files) {
      const std::string given = file.path, name = file.name;
      if (lists.contains(given) || !finder.find(file, key)) continue;
      names += concat(names.empty() ? "" : ", ", std::string_view(given), " is ", std::string_view(file.path));
      if (!may_have_name) file.name = name;
    }
  };
  find(config.dataset, "dataset", command != generate_command);
  find(config.eval_dataset, "eval_dataset", false);
  config.uses_dataset_dir = finder.has_used_dataset_dir();
  names += finder.notes();
  if (!names.empty() && config.max_samples && command != generate_command) {
    for (data::DataFile& file : config.dataset) file.keep(*config.max_samples);
    for (data::DataFile& file : config.eval_dataset) file.keep(*config.max_samples);
    names += concat("; max_samples ", *config.max_samples, " is of each file, as in LLaMA-Factory");
    config.max_samples.reset();
  }
  return names;
}

}  // namespace lora::settings
