#pragma once

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "lora/core/scalar.hpp"
#include "lora/io/files/file.hpp"

namespace lora::test {

/// What happens at one numbered operation of the file layer.
enum class Fault {
  none,
  fails,           ///< it fails; what follows works
  disk_full,       ///< it and all that follow fail, but removing works; a write moves half its bytes first
  short_write,     ///< a write moves half its bytes; what follows works
  dies,            ///< the process is gone: neither it nor anything after it reaches the disk
  dies_mid_write,  ///< as dies, but half of a write has reached the disk
  loses_unsynced,  ///< as dies, and the power too: contents and names that were not synced are gone
  loses_data,      ///< as loses_unsynced, but all names have reached the disk
};

/// Counts the file layer's operations while it lives, and makes one of them go wrong. When it ends, `root` is as the
/// next start of the process would find it.
///
/// A model of the disk is kept beside the real one: each file knows the content that was synced last, each folder the
/// names that were. Losing power writes that model over `root`. Real file systems keep something between the two models
/// of loss, so what withstands both is safe. Links are not modeled. A process that dies runs on here, but reaches the
/// disk no more.
class FileFaults final : public io::FileHook {
 public:
  FileFaults(const std::filesystem::path& root, Fault fault, Index at)
      : root_(std::filesystem::absolute(root).lexically_normal()), fault_(fault), at_(at), disk_(scan(root_)) {
    former_ = io::set_file_hook(this);
  }
  FileFaults(const FileFaults&) = delete;
  FileFaults& operator=(const FileFaults&) = delete;
  ~FileFaults() override {
    io::set_file_hook(former_);
    if (fault_ == Fault::loses_unsynced || fault_ == Fault::loses_data) {
      for (const auto& entry : std::filesystem::directory_iterator(root_)) std::filesystem::remove_all(entry.path());
      restore(*disk_, root_);
    }
  }

  /// Whether the file system can exchange two names. Not every one can.
  static inline bool exchanges = true;

  /// Operations so far.
  Index count() const { return count_; }

  io::FileVerdict before(const io::FileOperation& operation) override {
    const std::lock_guard lock(mutex_);
    const bool writes = operation.kind == Kind::write;
    if (operation.kind == Kind::exchange && !exchanges) return {EINVAL};
    if (dead_) return {EIO};
    if (++count_ != at_) {
      const bool removes = operation.kind == Kind::remove;
      return full_ && !removes ? io::FileVerdict{ENOSPC} : io::FileVerdict{};
    }
    switch (fault_) {
      case Fault::none:
        return {};
      case Fault::fails:
        return {EIO};
      case Fault::short_write:
        return writes ? io::FileVerdict{0, (operation.bytes + 1) / 2} : io::FileVerdict{};
      case Fault::disk_full:
        full_ = true;
        return writes && operation.bytes > 1 ? io::FileVerdict{0, operation.bytes / 2} : io::FileVerdict{ENOSPC};
      case Fault::dies_mid_write:
        dead_ = true;
        return writes && operation.bytes > 1 ? io::FileVerdict{0, operation.bytes / 2} : io::FileVerdict{EIO};
      case Fault::dies:
      case Fault::loses_unsynced:
      case Fault::loses_data:
        dead_ = true;
        return {EIO};
    }
    return {};
  }

  void after(const io::FileOperation& operation) override {
    const std::lock_guard lock(mutex_);
    const std::string name = operation.path.filename().native();
    const bool changes =
        operation.kind != Kind::write && operation.kind != Kind::lock && operation.kind != Kind::measure;
    if (!changes || !inside(operation.path)) return;
    if (operation.kind == Kind::sync_folder) {
      Node& folder = node(operation.path);
      folder.synced = folder.names;
      return;
    }
    Node& folder = node(io::folder_of(operation.path));
    auto& entry = folder.names[name];
    switch (operation.kind) {
      case Kind::create:
        if (!entry) entry = std::make_shared<Node>();
        if (!operation.keeps) entry->remains.clear();
        break;
      case Kind::sync:
        entry->content = entry->remains = content_of(operation.path);
        break;
      case Kind::truncate:
        entry->remains = entry->content.substr(0, operation.bytes);
        break;
      case Kind::create_folder:
        entry = std::make_shared<Node>();
        entry->is_folder = true;
        break;
      case Kind::rename: {
        const auto moved = entry;
        folder.names.erase(name);
        node(io::folder_of(operation.target)).names[operation.target.filename().native()] = moved;
        break;
      }
      case Kind::exchange:
        std::swap(entry, node(io::folder_of(operation.target)).names.at(operation.target.filename().native()));
        break;
      case Kind::remove:
        folder.names.erase(name);
        break;
      default:
        break;
    }
  }

 private:
  using Kind = io::FileOperation::Kind;

  struct Node {
    bool is_folder = false;
    std::string content;                                  // of a file: when it was synced last
    std::string remains;                                  // of a file: the same, but for what was cut off since
    std::map<std::string, std::shared_ptr<Node>> names;   // of a folder: now
    std::map<std::string, std::shared_ptr<Node>> synced;  // of a folder: when it was synced last
  };

  static std::string content_of(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  static std::shared_ptr<Node> scan(const std::filesystem::path& path) {
    auto node = std::make_shared<Node>();
    node->is_folder = std::filesystem::is_directory(path);
    if (node->is_folder) {
      for (const auto& entry : std::filesystem::directory_iterator(path))
        if (!entry.is_symlink()) node->names[entry.path().filename().native()] = scan(entry.path());
      node->synced = node->names;
    } else {
      node->content = node->remains = content_of(path);
    }
    return node;
  }

  void restore(const Node& folder, const std::filesystem::path& path) const {
    const bool keeps_names = fault_ == Fault::loses_data;
    for (const auto& [name, node] : keeps_names ? folder.names : folder.synced) {
      if (node->is_folder) {
        std::filesystem::create_directory(path / name);
        restore(*node, path / name);
      } else {
        std::ofstream(path / name, std::ios::binary) << (keeps_names ? node->remains : node->content);
      }
    }
  }

  std::filesystem::path relative(const std::filesystem::path& path) const {
    return std::filesystem::absolute(path).lexically_normal().lexically_relative(root_);
  }
  bool inside(const std::filesystem::path& path) const { return *relative(path).begin() != ".."; }
  Node& node(const std::filesystem::path& path) const {
    Node* at = disk_.get();
    for (const auto& part : relative(path))
      if (part != "." && !part.empty()) at = at->names.at(part.native()).get();
    return *at;
  }

  std::filesystem::path root_;
  Fault fault_;
  Index at_;
  std::shared_ptr<Node> disk_;
  io::FileHook* former_ = nullptr;
  std::mutex mutex_;
  Index count_ = 0;
  bool dead_ = false;
  bool full_ = false;
};

/// Calls `run` with the fault at operation 1, 1 + `stride`, … until it passes without reaching that number;
/// `prepare(k)` comes before, `check(k, reached)` after each. Lora's errors from `run` are expected. Returns   the
/// number of operations of a whole run
template <class Prepare, class Run, class Check>
Index sweep_faults(const std::filesystem::path& root, Fault fault, Prepare&& prepare, Run&& run, Check&& check,
                   Index stride = 1) {
  for (Index at = 1;; at += stride) {
    prepare(at);
    Index count = 0;
    {
      FileFaults faults(root, fault, at);
      try {
        run();
      } catch (const Error&) {  // what it left behind is for check
      }
      count = faults.count();
    }
    check(at, count >= at);
    if (count < at) return count;
  }
}

}  // namespace lora::test
