#pragma once

#include "lora/core/config.hpp"
#include "lora/settings/dataset_info.hpp"

namespace lora::settings::detail {

/// The entries of a dataset_info.json.
class DatasetInfo {
 public:
  /// Throws   IoError, FormatError
  explicit DatasetInfo(const io::Path& folder) : folder_(folder), file_(folder / file_name) {}

  static bool is_in(const io::Path& folder) { return io::is_there(folder / file_name); }

  bool has(std::string_view name) const { return file_->has(name); }

  /// The file of a name that there is.
  data::DataFile operator[](const std::string& name) const {
    const io::JsonView entry = *file_->find(name);
    if (!entry.json().is_object()) entry.fail("expected an object");
    expect_known(entry);
    if (entry.get<bool>("ranking").value_or(false))
      entry.fail("\"ranking\" is true: preference data, which are not supported; expected records with one answer");
    data::DataFile file(path_of(entry));
    file.name = name;
    if (const auto most = entry.get<Index>("num_samples")) {
      if (*most < 1) entry.fail("\"num_samples\" is ", *most, "; expected 1 or more");
      file.max_samples = most;
    }
    if (const auto split = entry.get<std::string>("split"); split && *split != "train")
      entry.fail("\"split\" is ", std::string_view(*split),
                 ", of a data set of a hub; expected \"train\", which a file is");
    for (const char* part : {"subset", "folder", "revision"})
      if (entry.has(part)) entry.fail("\"", part, "\" is of a data set of a hub; expected a file without it");
    read_columns(entry, file.columns);
    return file;
  }

  [[noreturn]] void fail_unknown(std::string_view key, const std::string& given, std::string_view name) const {
    std::vector<std::string_view> names;
    std::string list;
    for (const auto& [known, entry] : io::json_fields(file_->json())) {
      names.emplace_back(known);
      if (names.size() <= 40) list += concat(list.empty() ? "" : ", ", std::string_view(known));
    }
    const std::string_view nearest = nearest_name(name, names);
    fail<ConfigError>("key ", key, ": given ", std::string_view(given), ", which is no file, and no name in ",
                      (folder_ / file_name).native(), "; allowed: a path, or one of ", std::string_view(list),
                      names.size() > 40 ? ", ..." : "", nearest.empty() ? "" : "; nearest: ", nearest);
  }

 private:
  static constexpr const char* file_name = "dataset_info.json";

  static void expect_known(const io::JsonView& entry) {
    for (const auto& [field, value] : io::json_fields(entry.json()))
      for (const std::string_view known :
           {"file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name", "formatting",
            "ranking", "num_samples", "split", "subset", "folder", "revision", "columns", "tags", ""}) {
        if (field == known) break;
        if (known.empty())
          entry.fail("the field \"", std::string_view(field),
                     "\"; expected file_name, formatting, columns, tags, num_samples");
      }
  }

  std::string path_of(const io::JsonView& entry) const {
    const auto name = entry.get<std::string>("file_name");
    if (name && name->empty()) entry.fail("\"file_name\" is empty");
    // A hub's data set that was fetched and has its file's name as well.
    if (name && io::is_there(folder_ / *name)) return (folder_ / *name).native();
    for (const char* place : {"hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name"})
      if (const auto hub = entry.get<std::string>(place))
        entry.fail("\"", place, "\" is ", std::string_view(*hub),
                   ", and nothing is downloaded; expected \"file_name\" with ", "the name of its file in ",
                   folder_.native());
    if (!name) entry.fail("\"file_name\" is missing");
    return (folder_ / *name).native();
  }

  static void read_columns(const io::JsonView& entry, data::RecordColumns& columns) {
    const std::string formatting = entry.get<std::string>("formatting").value_or("alpaca");
    const bool turns = formatting == "sharegpt" || formatting == "openai";
    if (!turns && formatting != "alpaca")
      entry.fail("\"formatting\" is ", std::string_view(formatting), "; expected alpaca, sharegpt or openai");
    const auto read = [&](const char* field, data::RecordColumns::Names& names) {
      const auto object = entry.find(field);
      if (!object) return;
      if (!object->json().is_object()) object->fail("expected an object");
      object->for_each_field([&](const std::string& name, const io::JsonView& value) {
        if (value.json().is_null()) return;
        for (const std::string_view other : {"images", "videos", "audios"})
          if (name == other) value.fail("records of text alone are supported; expected none");
        for (const std::string_view other : {"chosen", "rejected", "kto_tag"})
          if (name == other) value.fail("preference data, which are not supported; expected records with one answer");
        names.emplace_back(name, value.as<std::string>());
      });
    };
    read("columns", columns.columns);
    read("tags", columns.tags);
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
};

/// What stands behind the last # as a number of records, and what before it.
LORA_INLINE std::optional<std::pair<std::string, Index>> split_count(const std::string& text) {
  const std::size_t mark = text.rfind('#');
  if (mark == text.npos || mark == 0) return std::nullopt;
  const auto count = parse_number<Index>(std::string_view(text).substr(mark + 1));
  if (!count || *count < 1) return std::nullopt;
  return std::pair{text.substr(0, mark), *count};
}

/// Keeps the smaller of two numbers of records.
LORA_INLINE void keep_most(data::DataFile& file, std::optional<Index> most) {
  if (most) file.max_samples = std::min(*most, file.max_samples.value_or(*most));
}

/// Finds a file that is given by its name, if there is a list of names; whether it was found there.
LORA_INLINE bool find_dataset(data::DataFile& file, std::string_view key, const Config& config) {
  if (io::is_there(file.path)) return false;
  const std::string given = file.path;
  std::optional<Index> most;
  if (const auto part = split_count(given)) {
    file.path = part->first;
    most = part->second;
  }
  if (io::is_there(file.path)) {
    keep_most(file, most);
    return false;
  }
  const io::Path path = file.path;
  const io::Path folder = path.has_parent_path() ? path.parent_path() : io::Path(config.dataset_dir);
  const std::string name = path.filename().native();
  if (name.empty() || !DatasetInfo::is_in(folder)) {  // a path, then: opening it says what is wrong
    file.path = given;
    return false;
  }
  const DatasetInfo info(folder);
  if (!info.has(name)) info.fail_unknown(key, given, name);
  data::DataFile found = info[name];
  keep_most(found, file.max_samples);
  keep_most(found, most);
  found.weight = file.weight;
  if (!file.name.empty()) found.name = file.name;
  if (!file.columns.empty()) found.columns = file.columns;
  file = std::move(found);
  return true;
}

}  // namespace lora::settings::detail

namespace lora::settings {

LORA_INLINE std::string find_datasets(Config& config, Command command, const data::RecordLists& lists) {
  std::string names;
  const auto find = [&](std::vector<data::DataFile>& files, std::string_view key, bool may_have_name) {
    bool any = false;
    for (data::DataFile& file : files) {
      const std::string given = file.path;
      if (lists.contains(given) || !detail::find_dataset(file, key, config)) continue;
      names += concat(names.empty() ? "" : ", ", std::string_view(given), " is ", std::string_view(file.path));
      if (!may_have_name) file.name.clear();
      any = true;
    }
    return any;
  };
  if (!(find_key("dataset")->commands & command)) return names;
  const bool train = find(config.dataset, "dataset", command != generate_command);
  const bool eval = find(config.eval_dataset, "eval_dataset", false);
  if ((train || eval) && config.max_samples && command != generate_command) {
    for (data::DataFile& file : config.dataset) detail::keep_most(file, config.max_samples);
    for (data::DataFile& file : config.eval_dataset) detail::keep_most(file, config.max_samples);
    names += concat("; max_samples ", *config.max_samples, " is of each file, as in LLaMA-Factory");
    config.max_samples.reset();
  }
  return names;
}

}  // namespace lora::settings
