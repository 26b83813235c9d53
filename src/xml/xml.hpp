// xml.hpp: XML for readers of users' files: elements as they begin and end, attributes as numbers in range, the first
// fault with its position. The cost of a file is bounded by its length. Document types with declarations, and so
// entities, are rejected, and so is nesting deeper than any valid file has.
#pragma once
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

#include "src/base/result.hpp"

namespace weft::internal::xml {

// A position in the file, from 1.
struct Mark {
    int line = 1, column = 1;
};

template <class... Arguments>
Status fail_at(ErrorId error, const Mark& mark, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    return fail(error, "line {}, column {}: {}", mark.line, mark.column,
                fmt::format(format, std::forward<Arguments>(arguments)...));
}

// Short and printable, in backquotes, for a sentence.
std::string shown(std::string_view text);

// Escaped for an attribute or for text between tags.
void append_escaped(std::string& text, char letter);

// An element as it begins, with its attributes. Its first fault is kept, and ends the reading.
class Element {
  public:
    Element(const char* name, const char** pairs, Mark mark, Status& fault)
        : name_(name), pairs_(pairs), mark_(mark), fault_(fault) {}
    std::string_view name() const { return name_; }
    const Mark& mark() const { return mark_; }
    bool ok() const { return fault_.ok(); }
    // Null: there is no such attribute.
    const char* find(const char* name) const;
    std::string_view text(const char* name);
    template <class Visit>
    void each_attribute(Visit visit) const {
        for (const char** pair = pairs_; *pair; pair += 2) visit(pair[0], pair[1]);
    }
    template <class Number>
    Number number(const char* name, Number least, Number most) {
        const std::string_view value = text(name);
        return fault_ ? read(name, value, least, most) : least;
    }
    template <class Number>
    Number number_or(const char* name, Number least, Number most, Number otherwise) {
        const char* value = find(name);
        return value ? read<Number>(name, value, least, most) : otherwise;
    }
    template <class... Arguments>
    void wrong(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
        if (fault_) fault_ = fail_at(error::file_syntax, mark_, format, std::forward<Arguments>(arguments)...);
    }

  private:
    template <class Number>
    Number read(const char* name, std::string_view text, Number least, Number most) {
        Number value{};
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool whole = end == text.data() + text.size();
        if (whole && error == std::errc() && value >= least && value <= most) return value;
        // from_chars of unsigned types takes nothing of a number below 0.
        const bool below = text.size() > 1 && text[0] == '-' && text.find_first_not_of("0123456789", 1) == text.npos;
        if (below || (whole && error != std::errc::invalid_argument))
            wrong("{} of <{}> is {}; it must lie in {}..{}", name, name_, shown(text), least, most);
        else
            wrong("{} of <{}> is {}, which is not a number", name, name_, shown(text));
        return least;
    }

    const char* name_;
    const char** pairs_;
    Mark mark_;
    Status& fault_;
};

class Handler {
  public:
    virtual ~Handler() = default;
    virtual void start(Element& element) = 0;
    virtual void end() {}  // of the innermost open element
};

// Passes the elements of `text` to `handler` until there is a fault, which is returned. weftInvalidArgument: the file
// is faulty, with the position; weftSystemError: no memory for a parser.
Status read(std::string_view text, Handler& handler);

// The name of the first element, after comments, declarations and the like. Empty: the text is not XML up to there.
std::string root_name(std::string_view text);

}  // namespace weft::internal::xml
