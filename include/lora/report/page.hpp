#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lora/io/files/path.hpp"
#include "lora/report/run_record.hpp"

namespace lora::report {

/// In a run's folder.
inline constexpr const char* page_file = "report.html";
inline constexpr const char* picture_file = "loss.svg";

/// How every page and every picture that is a file begins, by which they are known.
inline constexpr std::string_view page_begin = "<!DOCTYPE html>\n<!-- a report of lora -->\n";
inline constexpr std::string_view picture_begin = "<!-- a picture of lora -->\n";

/// Runs as one page, without anything from elsewhere: curves, scores, settings that are not the defaults (of several
/// runs, those that differ), environment. `defaults`: of the settings.
std::string page_of(const std::vector<RunRecord>& runs, const io::Json& defaults);

/// The losses of a run, as a file of its own.
std::string loss_picture(const RunRecord& run);

/// Writes a page or a picture, whole or not at all.
/// Throws   IoError where another file has the name, or it can't be written
void write_page(const io::Path& path, std::string_view text);

}  // namespace lora::report

#ifndef LORA_COMPILED
#  include "lora/report/page.ipp"
#endif
