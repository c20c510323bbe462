#pragma once

#include <string>
#include <vector>

#include "lora/io/formats/json.hpp"

namespace lora::report {

/// evaluation_results.json as Markdown for people.
/// Throws   an error of the JSON library for results without a field that evaluations write
std::string evaluation_report(const io::Json& results);

namespace detail {

/// Text of any origin in a cell of a table.
std::string cell(const std::string& text);
std::string row(const std::vector<std::string>& cells);
/// Numbers to the right of the first column.
std::string head(const std::vector<std::string>& cells);
/// Five digits that matter, so that a column of like numbers stands digit below digit.
std::string perplexity(double value);
std::string percent(double share);
std::string signed_text(double value);

}  // namespace detail

}  // namespace lora::report

#ifndef LORA_COMPILED
#  include "lora/report/evaluation_report.ipp"
#endif
