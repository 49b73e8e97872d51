#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "exif.h"
#include "forking.h"
#include "jpeg.h"
#include "jpeg_header.h"
#include "jpeg_scans.h"
#include "jpegs.h"
#include "images.h"

namespace {

using unstarve::Jpeg;
using unstarve::Outcome;
using unstarve::ImageError;
using unstarve::Window;
using Bytes = std::vector<std::uint8_t>;

// The pixels of a window, 3 bytes each.
Bytes decoded(const Bytes &file, const Window &window) {
    Jpeg jpeg(file.data(), file.size());
    jpeg.start(window, 4);
    Bytes row(jpeg.row_pixels() * 4);
    Bytes pixels;
    for (std::size_t y = 0; y < window.height; ++y) {
        jpeg.read_row(row.data());
        for (std::size_t x = 0; x < window.width; ++x) {
            const std::uint8_t *const pixel = row.data() + (jpeg.margin_pixels() + x) * 4;
            pixels.insert(pixels.end(), pixel, pixel + 3);
        }
    }
    return pixels;
}

Bytes cut_out(const Bytes &pixels, std::size_t width, const Window &window) {
    Bytes part;
    for (std::size_t y = 0; y < window.height; ++y) {
        const auto from = pixels.begin() + static_cast<std::ptrdiff_t>(((window.top + y) * width + window.left) * 3);
        part.insert(part.end(), from, from + static_cast<std::ptrdiff_t>(window.width * 3));
    }
    return part;
}

void a_window_has_the_pixels_of_the_whole(const Kind &kind, std::mt19937 &random, int windows) {
    const Bytes file = jpeg_of(kind);
    const Bytes whole = decoded(file, {0, 0, kind.height, kind.width});
    for (int i = 0; i < windows; ++i) {
        const std::size_t height = 1 + random() % kind.height;
        const std::size_t width = 1 + random() % kind.width;
        const Window window{random() % (kind.height - height + 1), random() % (kind.width - width + 1), height, width};
        CHECK(decoded(file, window) == cut_out(whole, kind.width, window));
    }
}

void windows_of_every_kind_of_jpeg() {
    std::mt19937 random(1);
    const int samplings[][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {4, 2}, {1, 4}};
    for (const auto &[across, down] : samplings) {
        for (const bool progressive : {false, true}) {
            a_window_has_the_pixels_of_the_whole({97, 131, across, down, progressive}, random, 60);
            a_window_has_the_pixels_of_the_whole({96, 128, across, down, progressive}, random, 30);
            for (unsigned side = 1; side < 20; side += 3) {
                a_window_has_the_pixels_of_the_whole({side, 20 - side, across, down, progressive}, random, 8);
            }
        }
    }
    a_window_has_the_pixels_of_the_whole({97, 131, 2, 2, false, true}, random, 40);
    a_window_has_the_pixels_of_the_whole({97, 131, 2, 2, false, false, 1}, random, 40);
    a_window_has_the_pixels_of_the_whole({97, 131, 1, 1, false, false, 0, 0, JCS_RGB}, random, 40);
}

// The upright image, pixel by pixel, from the EXIF standard's words: what row 0 and column 0 are.
Bytes turned_upright(const Bytes &stored, std::size_t height, std::size_t width, int orientation) {
    const bool turned = orientation >= 5;
    const std::size_t rows = turned ? width : height;
    const std::size_t columns = turned ? height : width;
    Bytes upright;
    for (std::size_t y = 0; y < rows; ++y) {
        for (std::size_t x = 0; x < columns; ++x) {
            std::size_t from_top = turned ? x : y;
            std::size_t from_left = turned ? y : x;
            if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7) {
                from_top = height - 1 - from_top;
            }
            if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8) {
                from_left = width - 1 - from_left;
            }
            const std::uint8_t *const pixel = stored.data() + (from_top * width + from_left) * 3;
            upright.insert(upright.end(), pixel, pixel + 3);
        }
    }
    return upright;
}

unstarve::Batch bytes_batch(Bytes &memory, std::size_t height, std::size_t width) {
    return {{reinterpret_cast<std::byte *>(memory.data()), height, width, 1, true, nullptr}};
}

void every_orientation_is_upright() {
    for (int orientation = 1; orientation <= 8; ++orientation) {
        const Kind kind{37, 53, 2, 2, false, false, 0, orientation};
        const Bytes file = jpeg_of(kind);
        const Bytes expected =
            turned_upright(decoded(file, {0, 0, kind.height, kind.width}), kind.height, kind.width, orientation);
        const unstarve::Measured size = unstarve::measure({file.data(), file.size()});
        CHECK(size.height == (orientation >= 5 ? kind.width : kind.height));
        Bytes whole(expected.size());
        CHECK(unstarve::decode_whole({file.data(), file.size()}, size.height, size.width, whole.data()).outcome ==
              Outcome::decoded);
        CHECK(whole == expected);
        Bytes part(11 * 13 * 3);  // of its own size, so that nothing is resized
        const auto results = unstarve::decode_cuts({{file.data(), file.size()}}, {{false, 7, 9, 11, 13, false}},
                                                   bytes_batch(part, 11, 13), 1);
        CHECK(results[0].outcome == Outcome::decoded);
        CHECK(part == cut_out(expected, size.width, {7, 9, 11, 13}));
    }
}

int orientation_of(const std::vector<Bytes> &segments) {
    unstarve::Metadata metadata;
    for (const Bytes &segment : segments) {
        metadata.add_app1(segment.data(), segment.size());
    }
    return metadata.orientation();
}

void metadata_is_read_in_both_byte_orders_and_as_xmp() {
    const Bytes little = exif_with(6);
    const Bytes big = {'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1,
                       1, 0x12, 0, 3, 0, 0, 0, 1, 0, 8, 0, 0};
    CHECK(orientation_of({little}) == 6);
    CHECK(orientation_of({big}) == 8);
    CHECK(orientation_of({}) == 1);
    for (std::size_t size = 0; size < little.size() - 4; ++size) {
        const auto middle = little.begin() + static_cast<std::ptrdiff_t>(size);
        const Bytes cut(little.begin(), middle);
        CHECK(orientation_of({cut}) == 1);
        Bytes rest = {'E', 'x', 'i', 'f', 0, 0};
        rest.insert(rest.end(), middle, little.end());
        CHECK(size < 6 || orientation_of({cut, rest}) == 6);  // two segments make one
    }
    std::string xmp("http://ns.adobe.com/xap/1.0/");
    xmp += '\0';
    for (const char *const text : {"<a tiff:Orientation=\"3\"/>", "<tiff:Orientation>3</tiff:Orientation>"}) {
        const std::string all = xmp + text;
        CHECK(orientation_of({{all.begin(), all.end()}}) == 3);
        CHECK(orientation_of({{all.begin(), all.end()}, little}) == 6);
    }
}

void a_file_cut_short_anywhere_is_an_error_wherever_the_window_is() {
    for (const bool progressive : {false, true}) {
        const Bytes file = jpeg_of({40, 40, 2, 2, progressive});
        for (std::size_t size = 3; size < file.size() - 1; size += 1 + size / 40) {
            const Bytes part(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
            CHECK_THROWS(decoded(part, {0, 0, 1, 1}), ImageError);
        }
    }
}

// Writes other measures into the header of a file.
Bytes resized(Bytes file, unsigned height, unsigned width) {
    for (std::size_t at = 2; at + 9 < file.size(); at += 2 + file[at + 2] * 256u + file[at + 3]) {
        if (file[at + 1] == 0xC0 || file[at + 1] == 0xC2) {
            file[at + 5] = static_cast<std::uint8_t>(height >> 8);
            file[at + 6] = static_cast<std::uint8_t>(height);
            file[at + 7] = static_cast<std::uint8_t>(width >> 8);
            file[at + 8] = static_cast<std::uint8_t>(width);
            return file;
        }
    }
    CHECK(false);
    return file;
}

void giants_are_refused_before_anything_is_allocated() {
    for (const bool progressive : {false, true}) {
        const Bytes file = jpeg_of({40, 40, 2, 2, progressive, false, 0, 6});
        for (const auto &[height, width] : {std::pair{65500u, 65500u}, {13000u, 13000u}, {65500u, 40u}}) {
            const Bytes giant = resized(file, height, width);
            Bytes out(8 * 8 * 3);
            const auto results = unstarve::decode_cuts({{giant.data(), giant.size()}}, {{true, 0, 0, 0, 0, false}},
                                                       bytes_batch(out, 8, 8), 1);
            CHECK(results[0].outcome == Outcome::failed);
        }
    }
    const Bytes too_large = resized(jpeg_of({40, 40}), 65500, 65500);
    CHECK(unstarve::measure({too_large.data(), too_large.size()}).result.outcome == Outcome::failed);
}

// The header of a progressive image, and its first scan `count` times.
Bytes repeated_scans(const Bytes &progressive, std::size_t count) {
    std::size_t scan = 2;
    while (progressive[scan + 1] != 0xDA) {
        scan += 2 + progressive[scan + 2] * 256u + progressive[scan + 3];
    }
    std::size_t behind = scan + 2;
    while (progressive[behind] != 0xFF || progressive[behind + 1] == 0) {
        ++behind;
    }
    const auto place = [&](std::size_t at) { return progressive.begin() + static_cast<std::ptrdiff_t>(at); };
    Bytes file(place(0), place(scan));
    for (std::size_t i = 0; i < count; ++i) {
        file.insert(file.end(), place(scan), place(behind));
    }
    file.insert(file.end(), {0xFF, 0xD9});
    return file;
}

void scans_are_limited_by_the_pixels_they_pass_over() {
    CHECK(unstarve::max_jpeg_scans(1) == 500);
    CHECK(unstarve::max_jpeg_scans(unstarve::max_pixels) == 24);
    const Bytes baseline = jpeg_of({20, 20});
    const Bytes progressive = jpeg_of({20, 20, 2, 2, true});
    CHECK(unstarve::count_jpeg_scans(baseline.data(), baseline.size()) == 1);
    CHECK(unstarve::count_jpeg_scans(progressive.data(), progressive.size()) == 10);
    for (const std::size_t count : {500u, 501u}) {
        const Bytes file = repeated_scans(progressive, count);
        CHECK(unstarve::count_jpeg_scans(file.data(), file.size()) == count);
        Bytes out(8 * 8 * 3);
        const auto results = unstarve::decode_cuts({{file.data(), file.size()}}, {{true, 0, 0, 0, 0, false}},
                                                   bytes_batch(out, 8, 8), 1);
        CHECK((results[0].outcome == Outcome::decoded) == (count == 500));
    }
}

void a_image_that_is_not_to_be_turned_is_as_it_is_stored() {
    for (const bool progressive : {false, true}) {
        const Bytes file = jpeg_of({30, 50, 2, 2, progressive, false, 0, 6});
        const unstarve::Measured size = unstarve::measure({file.data(), file.size(), false});
        CHECK(size.height == 30 && size.width == 50);
        Bytes pixels(30 * 50 * 3);
        CHECK(unstarve::decode_whole({file.data(), file.size(), false}, 30, 50, pixels.data()).outcome == Outcome::decoded);
        CHECK(pixels == decoded(file, {0, 0, 30, 50}));
    }
}

void what_others_must_decode_is_left_to_them() {
    Kind cmyk{16, 16};
    cmyk.colours = JCS_CMYK;
    cmyk.across = cmyk.down = 1;
    const Bytes four_inks = jpeg_of(cmyk);
    const Bytes png = {0x89, 'P', 'N', 'G'};
    const Bytes nothing;
    Bytes out(3 * 8 * 8 * 3);
    const unstarve::Cut whole{true, 0, 0, 0, 0, false};
    const auto results = unstarve::decode_cuts(
        {{four_inks.data(), four_inks.size()}, {png.data(), png.size()}, {nothing.data(), 0}}, {whole, whole, whole},
        bytes_batch(out, 8, 8), 2);
    CHECK(results[0].outcome == Outcome::not_for_us);
    CHECK(results[1].outcome == Outcome::not_for_us);
    CHECK(results[2].outcome == Outcome::failed);
}

void threads_change_nothing() {
    std::vector<Bytes> files;
    std::vector<unstarve::Encoded> images;
    std::vector<unstarve::Cut> cuts;
    for (unsigned i = 0; i < 24; ++i) {
        files.push_back(jpeg_of({30 + i, 60 - i, 2, 2, i % 2 == 0, false, 0, static_cast<int>(i % 9)}));
    }
    for (const Bytes &file : files) {
        images.push_back({file.data(), file.size()});
        cuts.push_back({false, 3, 5, 20, 24, images.size() % 2 == 0});
    }
    Bytes alone(files.size() * 16 * 18 * 3);
    Bytes together(alone.size());
    unstarve::decode_cuts(images, cuts, bytes_batch(alone, 16, 18), 1);
    unstarve::decode_cuts(images, cuts, bytes_batch(together, 16, 18), 4);
    CHECK(alone == together);
}

#ifndef __SANITIZE_THREAD__  // which does not follow a process with threads through a fork
void a_child_decodes_with_threads_of_its_own() {
    const pid_t child = fork_at_rest();
    if (child == 0) {
        threads_change_nothing();
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}
#endif

}  // namespace

int main() {
    windows_of_every_kind_of_jpeg();
    every_orientation_is_upright();
    metadata_is_read_in_both_byte_orders_and_as_xmp();
    a_file_cut_short_anywhere_is_an_error_wherever_the_window_is();
    giants_are_refused_before_anything_is_allocated();
    scans_are_limited_by_the_pixels_they_pass_over();
    a_image_that_is_not_to_be_turned_is_as_it_is_stored();
    what_others_must_decode_is_left_to_them();
    threads_change_nothing();
#ifndef __SANITIZE_THREAD__
    a_child_decodes_with_threads_of_its_own();
#endif
}
