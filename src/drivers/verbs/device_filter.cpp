#include "src/drivers/verbs/device_filter.hpp"

#include <algorithm>
#include <charconv>

#include "src/base/edit_distance.hpp"
#include "src/base/name_list.hpp"

namespace weft::internal::verbs {

namespace {

// The text before the separator. Removes both.
std::string_view take_part(std::string_view& text, char separator) {
    const size_t end = std::min(text.find(separator), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return part;
}

Result<DeviceWish> read_wish(const char* variable, std::string_view word) {
    std::string_view rest = word;
    DeviceWish wish;
    wish.name = take_part(rest, ':');
    if (wish.name.empty()) return fail(error::option_value, "{}: `{}` names no device", variable, word);
    if (word.back() == ':') return fail(error::option_value, "{}: `{}` ends with a colon", variable, word);
    struct Part {
        int* number;
        int least;
        const char* what;
    };
    for (const Part& part : {Part{&wish.port, 1, "port"}, Part{&wish.rail, 0, "rail"}, Part{&wish.plane, 0, "plane"}}) {
        if (rest.empty()) return wish;
        const std::string_view text = take_part(rest, ':');
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *part.number);
        if (error != std::errc() || end != text.data() + text.size() || *part.number < part.least)
            return fail(error::option_value, "{}: the {} of `{}` is `{}`; it is a number from {} on", variable,
                        part.what, word, text, part.least);
    }
    if (!rest.empty())
        return fail(error::option_value, "{}: `{}` has too many parts; it is dev[:port[:rail[:plane]]]", variable,
                    word);
    return wish;
}

}  // namespace

Result<DeviceFilter> DeviceFilter::read(const char* variable, std::string_view text) {
    DeviceFilter filter;
    filter.variable_ = variable;
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    if (!text.empty() && text.front() == '^') filter.excludes_ = true, text.remove_prefix(1);
    if (!text.empty() && text.front() == '=') filter.exact_ = true, text.remove_prefix(1);
    // NameList takes a word's ^ as its own, which a list of devices has only at its head.
    const NameList words(text);
    if (!words.excluded.empty())
        return fail(error::option_value, "{}: ^ stands only at the head of the list, for all devices of it", variable);
    for (const std::string_view word : words.allowed) {
        Result<DeviceWish> wish = read_wish(variable, word);
        if (!wish) return wish.take_status();
        filter.wishes_.push_back(std::move(*wish));
    }
    return filter;
}

Status DeviceFilter::check(std::span<const std::string> existing) const {
    for (const DeviceWish& wish : wishes_) {
        if (std::any_of(existing.begin(), existing.end(), [&](const std::string& name) { return fits(wish, name); }))
            continue;
        if (existing.empty())
            return fail(error::option_names, "{} names {}, but there is no RDMA device", variable_, wish.name);
        const auto nearest =
            std::min_element(existing.begin(), existing.end(), [&](const std::string& one, const std::string& other) {
                return edit_distance(wish.name, one) < edit_distance(wish.name, other);
            });
        std::string names;
        for (const std::string& name : existing) names += (names.empty() ? "" : ", ") + name;
        return fail(error::option_names, "{} names {}, which is no RDMA device here; did you mean {}? There are {}",
                    variable_, wish.name, *nearest, names);
    }
    return ok();
}

bool DeviceFilter::fits(const DeviceWish& wish, std::string_view device) const {
    return exact_ ? device == wish.name : device.substr(0, wish.name.size()) == wish.name;
}

const DeviceWish* DeviceFilter::first(std::string_view device, int port) const {
    for (const DeviceWish& wish : wishes_)
        if (fits(wish, device) && (wish.port < 0 || wish.port == port)) return &wish;
    return nullptr;
}

bool DeviceFilter::admits(std::string_view device, int port) const {
    return wishes_.empty() || (first(device, port) != nullptr) != excludes_;
}

const DeviceWish* DeviceFilter::wish(std::string_view device, int port) const {
    return excludes_ ? nullptr : first(device, port);
}

}  // namespace weft::internal::verbs
