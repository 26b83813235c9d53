// svg.hpp: a picture as the text of an SVG file that grows, and its size with it. The same calls make the same bytes; no
// scripts, no styles, no fonts but the reader's, and a ground of its own, so that it is seen on light pages and dark ones.
#pragma once
#include <string>
#include <string_view>

namespace weft::internal::tools {

struct Stroke {
    std::string_view colour = "#444444";
    double width = 1;
    bool dashed = false;
};

enum class Anchor { start, middle, end };

struct Lettering {
    double size = 11;
    Anchor anchor = Anchor::start;
    std::string_view colour = "#222222";
    bool bold = false;
};

struct Point {
    double x = 0, y = 0;
};

struct Box {
    double x = 0, y = 0, width = 0, height = 0;
    double right() const { return x + width; }
    double bottom() const { return y + height; }
    double middle() const { return x + width / 2; }
};

// Pixels that letters take at most, as a rule: fonts are the reader's.
double width_of(std::string_view text, double size);
// Cut, with three points at its end, where it would be wider.
std::string fitted(std::string_view text, double width, double size);

class Svg {
  public:
    void rectangle(const Box& box, std::string_view fill, const Stroke& stroke = {}, double radius = 3);
    void line(Point from, Point to, const Stroke& stroke);
    // From, control, control, to.
    void curve(Point from, Point first, Point second, Point to, const Stroke& stroke);
    // A triangle whose point is `to`, as what comes from `from` would have it.
    void arrow_head(Point from, Point to, double size, std::string_view colour);
    // `at`: on its base line. Bytes that are no UTF-8, and letters that XML has not, become question marks.
    void text(Point at, std::string_view text, const Lettering& lettering = {});
    // What is drawn until the next call of `end` shows this where a reader points.
    void begin_group(std::string_view tip);
    void end_group();
    // Nothing is drawn beyond this; whatever is drawn reaches by itself.
    void reach(Point point);
    double right() const { return right_; }
    double bottom() const { return bottom_; }
    // The whole file; `title` is for who cannot see.
    std::string finish(std::string_view title) const;

  private:
    std::string body_;
    double right_ = 0, bottom_ = 0;
};

}  // namespace weft::internal::tools
