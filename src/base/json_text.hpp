// json_text.hpp: JSON as text, whatever bytes its strings hold.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace weft::internal {

// `indent` blanks a level; -1: one line. Bytes that are not UTF-8, such as those of a file's name, become U+FFFD.
// Without an error handler, dump() throws for them.
template <class Json>
std::string json_text(const Json& json, int indent = -1) {
    return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace weft::internal
