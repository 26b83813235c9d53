// xml_writing.hpp: writes XML into a string: nested elements with escaped attributes.
#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "src/xml/xml.hpp"

namespace weft::internal::topology {

class XmlWriter {
  public:
    void open(const char* name) {
        close_start(">\n");
        text_.append(2 * open_.size(), ' ');
        text_ += '<';
        text_ += name;
        open_.push_back(name);
        starting_ = true;
    }
    void attribute(const char* name, std::string_view value) {
        text_ += fmt::format(" {}=\"", name);
        for (const char letter : value) xml::append_escaped(text_, letter);
        text_ += '"';
    }
    void attribute(const char* name, int value) { text_ += fmt::format(" {}=\"{}\"", name, value); }
    void attribute(const char* name, double value) { text_ += fmt::format(" {}=\"{}\"", name, value); }
    void close() {
        const char* name = open_.back();
        open_.pop_back();
        if (starting_) return close_start("/>\n");
        text_.append(2 * open_.size(), ' ');
        text_ += fmt::format("</{}>\n", name);
    }
    std::string take() { return std::move(text_); }

  private:
    void close_start(const char* end) {
        if (starting_) text_ += end;
        starting_ = false;
    }
    std::string text_;
    std::vector<const char*> open_;
    bool starting_ = false;
};

}  // namespace weft::internal::topology
