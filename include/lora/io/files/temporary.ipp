#pragma once

#include "lora/core/config.hpp"
#include "lora/io/files/temporary.hpp"

namespace lora::io::detail {

LORA_INLINE std::string_view marker_of(Temporary kind) {
  constexpr std::string_view markers[] = {".lora-partial", ".lora-writing", ".lora-replaced", ".lora-removing"};
  return markers[static_cast<std::size_t>(kind)];
}

LORA_INLINE std::string hexadecimal(std::uint64_t number, std::size_t digits) {
  std::string text(digits, '0');
  for (std::size_t i = digits; i-- > 0; number >>= 4) text[i] = "0123456789abcdef"[number & 15u];
  return text;
}

/// Eight digits that identify a temporary name as this program's.
LORA_INLINE std::string seal_of(std::string_view begin) {
  return hexadecimal(text_hash(concat("lora temporary ", begin)), 8);
}

}  // namespace lora::io::detail

namespace lora::io {

LORA_INLINE std::string held_name(const std::string& name) {
  constexpr std::size_t longest = 200, digits = 16;
  if (name.size() <= longest) return name;
  std::size_t kept = longest - digits - 1;
  while (kept > 0 && (static_cast<unsigned char>(name[kept]) & 0xC0u) == 0x80u) --kept;  // no part of a character
  return concat(std::string_view(name).substr(0, kept), "~", detail::hexadecimal(text_hash(name), digits));
}

LORA_INLINE Path temporary_name(const Path& path, Temporary kind) {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number))
    fail<IoError>("no random number for a temporary name: ", std::generic_category().message(errno));
  std::string begin = held_name(path.filename().native());
  begin += "." + detail::hexadecimal(number, detail::random_digits);
  return path.parent_path() / concat(begin, detail::seal_of(begin), detail::marker_of(kind));
}

LORA_INLINE std::optional<std::string> name_of_temporary(const Path& path, Temporary kind) {
  const Path last = path.filename();
  std::string_view name = last.native();
  const auto marker = detail::marker_of(kind);
  if (!name.ends_with(marker)) return std::nullopt;
  name.remove_suffix(marker.size());
  if (name.size() < detail::sealed_digits + 2) return std::nullopt;
  const auto begin = name.substr(0, name.size() - (detail::sealed_digits - detail::random_digits));
  if (detail::seal_of(begin) != name.substr(begin.size())) return std::nullopt;
  return std::string(begin.substr(0, begin.size() - detail::random_digits - 1));
}

}  // namespace lora::io

namespace lora::io::detail {

LORA_INLINE SignalList<UnfinishedName>& unfinished_names() {
  static constinit SignalList<UnfinishedName> names;
  return names;
}

/// Removes the files of a folder, and the folder. Async-signal-safe.
LORA_INLINE void remove_flat_folder(const char* path) {
  const int folder = ::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return;
  alignas(dirent64) char entries[4096];
  for (int pass = 0; pass < 2; ++pass) {  // removing while listing may skip a name
    ::lseek(folder, 0, SEEK_SET);
    for (long got = 0; (got = ::syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;)
      for (long at = 0; at < got;) {
        const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
        ::unlinkat(folder, entry->d_name, 0);
        at += entry->d_reclen;
      }
  }
  ::close(folder);
  ::rmdir(path);
}

}  // namespace lora::io::detail

namespace lora::io {

LORA_INLINE Unfinished::Unfinished(const Path& path) {
  detail::UnfinishedName name{};
  const std::string& text = path.native();
  if (text.size() >= sizeof name.path) return;
  std::memcpy(name.path, text.c_str(), text.size() + 1);
  entry_ = detail::unfinished_names().add(name);
}

LORA_INLINE void remove_unfinished() {
  detail::unfinished_names().visit([](const detail::UnfinishedName& name) {
    if (::unlink(name.path) != 0) detail::remove_flat_folder(name.path);
  });
}

}  // namespace lora::io
