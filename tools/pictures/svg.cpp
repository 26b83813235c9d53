#include "tools/pictures/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "src/xml/xml.hpp"
#include "topology/files/xml_writing.hpp"

namespace weft::internal::tools {
namespace {

constexpr double margin = 16;
// Mean width of wide fonts, relative to the height.
constexpr double letter_width = 0.62;

// A tenth of a pixel is invisible.
std::string number(double value) { return fmt::format("{}", std::round(value * 10) / 10 + 0.0); }

// The number of bytes of the UTF-8 character that begins here; 0: invalid.
size_t letter_bytes(std::string_view text) {
    const auto byte = [&](size_t index) { return index < text.size() ? (unsigned char)text[index] : 0u; };
    const unsigned first = byte(0);
    const size_t bytes = first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : 4;
    if (first >= 0x80 && (first < 0xc2 || first > 0xf4)) return 0;
    for (size_t each = 1; each < bytes; ++each)
        if ((byte(each) & 0xc0) != 0x80) return 0;
    const unsigned second = byte(1);
    // Overlong forms, surrogates, code points beyond the last one, and the two that XML excludes.
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0)) return 0;
    if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90)) return 0;
    if (first == 0xef && second == 0xbf && byte(2) >= 0xbe) return 0;
    return bytes;
}

std::string escaped(std::string_view text) {
    std::string all;
    while (!text.empty()) {
        const size_t bytes = letter_bytes(text);
        if (bytes == 0)
            all += '?';
        else
            for (const char each : text.substr(0, bytes)) xml::append_escaped(all, each);
        text.remove_prefix(std::max<size_t>(bytes, 1));
    }
    return all;
}

std::string attributes_of(const Stroke& stroke) {
    return fmt::format(R"( stroke="{}" stroke-width="{}"{})", stroke.colour, number(stroke.width),
                       stroke.dashed ? R"( stroke-dasharray="4 3")" : "");
}

size_t letters_in(std::string_view text) {
    return size_t(std::count_if(text.begin(), text.end(), [](char each) { return (each & 0xc0) != 0x80; }));
}

}  // namespace

double width_of(std::string_view text, double size) { return double(letters_in(text)) * size * letter_width; }

std::string fitted(std::string_view text, double width, double size) {
    if (width_of(text, size) <= width) return std::string(text);
    const auto most = size_t(std::max(0.0, width / size / letter_width - 2));
    size_t bytes = 0;
    for (size_t letters = 0; letters < most && bytes < text.size(); ++letters)
        bytes += std::max<size_t>(letter_bytes(text.substr(bytes)), 1);
    return std::string(text.substr(0, bytes)) + "...";
}

void Svg::rectangle(const Box& box, std::string_view fill, const Stroke& stroke, double radius) {
    body_ += fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}" rx="{}" fill="{}"{}/>)", number(box.x),
                         number(box.y), number(box.width), number(box.height), number(radius), fill,
                         stroke.width > 0 ? attributes_of(stroke) : "");
    body_ += '\n';
    reach({box.right(), box.bottom()});
}

void Svg::line(Point from, Point to, const Stroke& stroke) {
    body_ += fmt::format(R"(<path d="M{} {}L{} {}" fill="none"{}/>)", number(from.x), number(from.y), number(to.x),
                         number(to.y), attributes_of(stroke));
    body_ += '\n';
    reach(from);
    reach(to);
}

void Svg::curve(Point from, Point first, Point second, Point to, const Stroke& stroke) {
    body_ += fmt::format(R"(<path d="M{} {}C{} {} {} {} {} {}" fill="none"{}/>)", number(from.x), number(from.y),
                         number(first.x), number(first.y), number(second.x), number(second.y), number(to.x),
                         number(to.y), attributes_of(stroke));
    body_ += '\n';
    // The curve stays within three quarters of the way to its control points.
    const auto middle = [](double a, double b, double c, double d) { return (a + 3 * b + 3 * c + d) / 8; };
    reach(from);
    reach({middle(from.x, first.x, second.x, to.x), middle(from.y, first.y, second.y, to.y)});
    reach(to);
}

void Svg::arrow_head(Point from, Point to, double size, std::string_view colour) {
    const double length = std::hypot(to.x - from.x, to.y - from.y);
    if (length == 0) return;
    const double x = (to.x - from.x) / length * size, y = (to.y - from.y) / length * size;
    body_ += fmt::format(R"(<path d="M{} {}L{} {}L{} {}Z" fill="{}"/>)", number(to.x), number(to.y),
                         number(to.x - x - y / 2), number(to.y - y + x / 2), number(to.x - x + y / 2),
                         number(to.y - y - x / 2), colour);
    body_ += '\n';
}

void Svg::text(Point at, std::string_view text, const Lettering& lettering) {
    const double width = width_of(text, lettering.size);
    const char* anchor = lettering.anchor == Anchor::middle ? R"( text-anchor="middle")"
                         : lettering.anchor == Anchor::end  ? R"( text-anchor="end")"
                                                            : "";
    body_ += fmt::format(R"(<text x="{}" y="{}" font-size="{}" fill="{}"{}{}>{}</text>)", number(at.x), number(at.y),
                         number(lettering.size), lettering.colour, anchor,
                         lettering.bold ? R"( font-weight="bold")" : "", escaped(text));
    body_ += '\n';
    const double behind = lettering.anchor == Anchor::start ? 1 : lettering.anchor == Anchor::middle ? 0.5 : 0;
    reach({at.x + width * behind, at.y + 3});
}

void Svg::begin_group(std::string_view tip) { body_ += fmt::format("<g><title>{}</title>\n", escaped(tip)); }

void Svg::end_group() { body_ += "</g>\n"; }

void Svg::reach(Point point) {
    right_ = std::max(right_, point.x);
    bottom_ = std::max(bottom_, point.y);
}

std::string Svg::finish(std::string_view title) const {
    const std::string width = number(right_ + margin), height = number(bottom_ + margin);
    return fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" )"
                       R"(font-family="Helvetica, Arial, sans-serif">)"
                       "\n<title>{2}</title>\n"
                       R"(<rect width="{0}" height="{1}" rx="6" fill="#ffffff"/>)"
                       "\n{3}</svg>\n",
                       width, height, escaped(title), body_);
}

}  // namespace weft::internal::tools
