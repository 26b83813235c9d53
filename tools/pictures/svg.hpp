// svg.hpp: builds the text of an SVG file. Its size grows with its content, and equal calls give equal bytes.
// It has no scripts, styles or fonts. It has its own background, so that it is readable on light and dark pages.
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

// The usual maximum width in pixels; the exact width depends on the reader's font.
double width_of(std::string_view text, double size);
// The text, shortened with an ellipsis if it would be wider.
std::string fitted(std::string_view text, double width, double size);

class Svg {
  public:
    void rectangle(const Box& box, std::string_view fill, const Stroke& stroke = {}, double radius = 3);
    void line(Point from, Point to, const Stroke& stroke);
    // Start, two control points, end.
    void curve(Point from, Point first, Point second, Point to, const Stroke& stroke);
    // A triangle with its tip at `to`, for a line from `from`.
    void arrow_head(Point from, Point to, double size, std::string_view colour);
    // `at` is on the base line. Invalid UTF-8 and characters that XML excludes become question marks.
    void text(Point at, std::string_view text, const Lettering& lettering = {});
    // A tooltip for everything drawn until the next call of `end`.
    void begin_group(std::string_view tip);
    void end_group();
    // Extends the picture to this point, as drawing there does.
    void reach(Point point);
    double right() const { return right_; }
    double bottom() const { return bottom_; }
    // The whole file; `title` is for screen readers.
    std::string finish(std::string_view title) const;

  private:
    std::string body_;
    double right_ = 0, bottom_ = 0;
};

}  // namespace weft::internal::tools
