#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lora/data/records/dataset.hpp"
#include "lora/io/files/file.hpp"
#include "support/temp_folder.hpp"

namespace lora::test {

/// "user=Q|assistant=A|": the turns of a record.
inline std::string turns_of(const data::Sample& sample) {
  std::string text;
  for (const auto& message : sample.messages) text += message.role + "=" + message.content + "|";
  return text;
}

/// A data set of one file with this content.
struct OneFile {
  explicit OneFile(const std::string& content, const std::string& name = "d.jsonl") : path(folder.path() / name) {
    io::write_file(path, content);
  }
  data::Dataset open(const data::DatasetOptions& options = {}) const {
    const std::vector<std::string> paths{path.string()};
    return data::Dataset::open(paths, options);
  }
  data::Sample first(const data::DatasetOptions& options = {}) const { return open(options)[0]; }

  /// What reading every record says, the folder taken off.
  std::string error(const data::DatasetOptions& options = {}) const {
    try {
      const data::Dataset dataset = open(options);
      for (Index i = 0; i < dataset.size(); ++i) dataset[i];
    } catch (const Error& error) {
      std::string text = error.what();
      const std::string prefix = (folder.path() / "").string();
      for (auto at = text.find(prefix); at != text.npos; at = text.find(prefix)) text.erase(at, prefix.size());
      return text;
    }
    return "nothing was thrown";
  }

  TempFolder folder;
  std::filesystem::path path;
};

}  // namespace lora::test
