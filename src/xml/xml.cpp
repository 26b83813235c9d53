#include "src/xml/xml.hpp"

#include <expat.h>

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace weft::internal::xml {

namespace {

constexpr size_t bytes_most = size_t(256) << 20;
// More than twice the depth of any format that is read here, and of any tree of PCI bridges.
constexpr size_t depth_most = 64;

// Handlers of Expat's events. No exception may pass through Expat, which is C.
class Parser {
  public:
    Parser(Handler& handler) : handler_(handler) {}
    Status read(std::string_view text) {
        if (text.size() > bytes_most)
            return fail_at(error::file_syntax, {}, "the file has {} bytes; at most {} MiB are read", text.size(),
                           bytes_most >> 20);
        if (!parser_) return fail(error::memory_exhausted, "out of memory for an XML parser");
        XML_SetUserData(parser_.get(), this);
        XML_SetElementHandler(parser_.get(), started, ended);
        XML_SetStartDoctypeDeclHandler(parser_.get(), doctype);
        const XML_Status status = XML_Parse(parser_.get(), text.data(), int(text.size()), XML_TRUE);
        if (thrown_) std::rethrow_exception(thrown_);
        if (!fault_) return std::move(fault_);
        if (status != XML_STATUS_OK) {
            const XML_Error error = XML_GetErrorCode(parser_.get());
            if (error == XML_ERROR_NO_MEMORY) throw std::bad_alloc();
            return fail_at(error::file_syntax, mark(), "this is not XML: {}{}", XML_ErrorString(error),
                           open_.empty() ? std::string()
                                         : fmt::format("; <{}> is not closed: is the file complete?", open_.back()));
        }
        return ok();
    }

  private:
    template <class XmlEvent>
    void guarded(XmlEvent event) {
        try {
            if (fault_) event();
        } catch (...) {
            thrown_ = std::current_exception();
        }
        if (thrown_ || !fault_) XML_StopParser(parser_.get(), XML_FALSE);
    }
    static void XMLCALL started(void* self, const char* name, const char** attributes) {
        auto& parser = *static_cast<Parser*>(self);
        parser.guarded([&] {
            Element element(name, attributes, parser.mark(), parser.fault_);
            if (parser.open_.size() == depth_most)
                return element.wrong("more than {} elements lie in each other", depth_most);
            parser.handler_.start(element);
            if (parser.fault_) parser.open_.emplace_back(name, strnlen(name, 40));
        });
    }
    static void XMLCALL ended(void* self, const char*) {
        auto& parser = *static_cast<Parser*>(self);
        parser.guarded([&] {
            parser.open_.pop_back();
            parser.handler_.end();
        });
    }
    // A doctype that only names a file, as hwloc writes it, declares nothing: that file is not read.
    static void XMLCALL doctype(void* self, const char*, const char*, const char*, int declares) {
        auto& parser = *static_cast<Parser*>(self);
        parser.guarded([&] {
            if (declares)
                parser.fault_ =
                    fail_at(error::file_syntax, parser.mark(), "a document type is not read; remove <!DOCTYPE ...>");
        });
    }

    Mark mark() const {
        return {int(XML_GetCurrentLineNumber(parser_.get())), int(XML_GetCurrentColumnNumber(parser_.get())) + 1};
    }

    struct Free {
        void operator()(XML_Parser parser) const { XML_ParserFree(parser); }
    };
    Handler& handler_;
    std::exception_ptr thrown_;  // out of memory
    std::unique_ptr<std::remove_pointer_t<XML_Parser>, Free> parser_{XML_ParserCreate(nullptr)};
    Status fault_;
    std::vector<std::string> open_;
};

}  // namespace

std::string shown(std::string_view text) {
    std::string result;
    for (const char letter : text.substr(0, 40)) result += letter >= ' ' && letter <= '~' ? letter : '?';
    return "`" + result + "`";
}

void append_escaped(std::string& text, char letter) {
    switch (letter) {
        case '<': text += "&lt;"; break;
        case '>': text += "&gt;"; break;
        case '&': text += "&amp;"; break;
        case '"': text += "&quot;"; break;
        case '\n':
        case '\r':
        case '\t': text += fmt::format("&#{};", int(letter)); break;
        default: text += static_cast<unsigned char>(letter) < ' ' ? '?' : letter;  // XML has no such characters
    }
}

const char* Element::find(const char* name) const {
    for (const char** pair = pairs_; *pair; pair += 2)
        if (strcmp(*pair, name) == 0) return pair[1];
    return nullptr;
}

std::string_view Element::text(const char* name) {
    const char* value = find(name);
    if (!value) wrong("<{}> has no attribute {}", name_, name);
    return value ? value : "";
}

Status read(std::string_view text, Handler& handler) { return Parser(handler).read(text); }

std::string root_name(std::string_view text) {
    struct Root : Handler {
        void start(Element& element) override {
            name = element.name();
            element.wrong("the rest is not wanted");
        }
        std::string name;
    } root;
    (void)read(text, root);
    return root.name;
}

}  // namespace weft::internal::xml
