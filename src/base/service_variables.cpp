#include "src/base/service_variables.hpp"

#include <cctype>

#include "src/base/environment.hpp"

namespace weft::internal {

namespace {

// Removes the suffix `end` from `text`.
bool take_end(std::string_view& text, std::string_view end) {
    if (!text.ends_with(end)) return false;
    text.remove_suffix(end.size());
    return true;
}

bool take_protocol(std::string_view& name) {
    return take_end(name, "_TCP") || take_end(name, "_UDP") || take_end(name, "_SCTP");
}

// _80 at the end of ..._PORT_80
bool take_number(std::string_view& name) {
    size_t digits = 0;
    while (digits < name.size() && isdigit(static_cast<unsigned char>(name[name.size() - 1 - digits]))) ++digits;
    if (digits == 0) return false;
    name.remove_suffix(digits);
    return take_end(name, "_");
}

bool is_url(std::string_view value) {
    return value.starts_with("tcp://") || value.starts_with("udp://") || value.starts_with("sctp://");
}

}  // namespace

bool is_service_variable(std::string_view name, std::string_view value) {
    if (name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT")) return true;
    if (name.find("_SERVICE_PORT_") != std::string_view::npos) return true;  // and the port's name
    if (is_url(value) && name.ends_with("_PORT")) return true;
    // NAME_PORT_80_TCP, optionally followed by _PROTO, _PORT or _ADDR
    const bool part = take_end(name, "_PROTO") || take_end(name, "_PORT") || take_end(name, "_ADDR");
    return (part || is_url(value)) && take_protocol(name) && take_number(name) && name.ends_with("_PORT");
}

std::vector<std::string> service_variables() {
    std::vector<std::string> names;
    for (const std::string& text : whole_environment()) {
        const size_t equals = text.find('=');
        if (!text.starts_with("WEFT_") || equals == std::string::npos) continue;
        const std::string name = text.substr(0, equals);
        if (is_service_variable(name, std::string_view(text).substr(equals + 1))) names.push_back(name);
    }
    return names;
}

}  // namespace weft::internal
