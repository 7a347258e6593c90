//! The plot: a panel for each kind, both axes logarithmic.

use std::error::Error;

use plotters::{
    coord::Shift,
    element::DashedPathElement,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::{
    series::{Point, Series},
    subject::Subject,
};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The size in whole pixels: twice the width of a page, because otherwise curves would have steps.
const SIZE: (u32, u32) = (2520, 3352);
/// The rows and columns of panels: one more than there are kinds, for the legend.
const PANELS: (usize, usize) = (4, 3);
/// The height of the title.
const HEAD: u32 = 88;
/// The lowest rate that can be measured with this number of probes.
const FLOOR: f64 = 1e-7;
const CEILING: f64 = 1.0;
const FONT: &str = "sans-serif";
const GRID: RGBColor = RGBColor(222, 222, 222);
const TEXT: RGBColor = RGBColor(34, 34, 34);
/// Colours that most people can tell apart, by M. Okabe and K. Ito, "Color Universal Design", 2008.
const COLOURS: [RGBColor; 4] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 134, 99),
    RGBColor(170, 74, 135),
];
const TITLE: &str = "False-positive rates of seenset's filters, measured and predicted";

/// Draws all series, as the text of an SVG file.
pub fn draw(all: &[Series]) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, body) = root.split_vertically(HEAD);
        head.draw(&Text::new(
            TITLE,
            (SIZE.0 as i32 / 2, 28),
            text(40, HPos::Center),
        ))?;
        let areas = body.split_evenly(PANELS);
        for (subject, area) in Subject::ALL.into_iter().zip(&areas) {
            let own: Vec<_> = all
                .iter()
                .filter(|series| series.subject == subject)
                .collect();
            panel(area, subject, &own)?;
        }
        if let Some(area) = areas.get(Subject::ALL.len()) {
            legend(area, all)?;
        }
        root.present()?;
    }
    Ok(describe(&svg))
}

fn text(size: u32, at: HPos) -> TextStyle<'static> {
    (FONT, size)
        .into_font()
        .color(&TEXT)
        .pos(Pos::new(at, VPos::Top))
}

fn panel(area: &Area<'_>, subject: Subject, own: &[&Series]) -> Result<(), Box<dyn Error>> {
    let percents: Vec<f64> = subject.percents().map(|percent| percent as f64).collect();
    let (Some(&first), Some(&last)) = (percents.first(), percents.last()) else {
        return Ok(());
    };
    let fills = (first * 0.8..last * 1.25).log_scale();
    let decades = (-7..=0).map(|decade| 10_f64.powi(decade)).collect();
    let rates = (FLOOR..CEILING).log_scale().with_key_points(decades);
    let mut chart = ChartBuilder::on(area)
        .margin(20)
        .caption(caption(subject), text(34, HPos::Left))
        .x_label_area_size(92)
        .y_label_area_size(136)
        .build_cartesian_2d(fills.with_key_points(ticks(last)), rates)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(TEXT)
        .x_label_formatter(&|percent| fill(*percent))
        .y_label_formatter(&|rate| decade(*rate))
        .label_style(text(26, HPos::Center))
        .x_desc(match subject.grows() {
            true => "keys added / initial capacity",
            false => "keys added / capacity",
        })
        .y_desc("false-positive rate")
        .draw()?;

    let capacity = [(100.0, FLOOR), (100.0, CEILING)];
    chart.draw_series(LineSeries::new(capacity, TEXT.mix(0.45).stroke_width(2)))?;
    for (series, colour) in own.iter().zip(COLOURS) {
        let asked = [first * 0.8, last * 1.25].map(|fill| (fill, series.asked));
        chart.draw_series(DashedLineSeries::new(asked, 24, 18, colour.stroke_width(2)))?;
        let curve = series.curve.iter().copied();
        let curve = curve.filter(|(_, rate)| (FLOOR..=CEILING).contains(rate));
        chart.draw_series(LineSeries::new(curve, colour.stroke_width(3)))?;
        for point in &series.points {
            let fill = point.percent as f64;
            if let Some((low, high)) = bar(point) {
                let bar = vec![(fill, low), (fill, high)];
                chart.draw_series([PathElement::new(bar, colour.mix(0.35).stroke_width(14))])?;
            }
            if point.measured() >= FLOOR {
                let dot = Circle::new((fill, point.measured()), 8, colour.filled());
                chart.draw_series([dot])?;
            }
        }
    }
    Ok(())
}

/// Returns the rates that chance allows, if they can be measured and reach beyond the dot.
fn bar(point: &Point) -> Option<(f64, f64)> {
    let (low, high) = point.by_keys.interval;
    let [low, high] = [low, high].map(|count| (count / point.probes as f64).max(FLOOR));
    let is_drawn = point.by_keys.rate >= FLOOR || point.found > 0;
    (is_drawn && high > low * 1.3).then_some((low, high))
}

fn caption(subject: Subject) -> &'static str {
    match subject {
        Subject::Blocked => "plain, blocked",
        Subject::Classic => "plain, classic",
        Subject::Counting => "counting",
        Subject::Aging => "aging, 8 slices",
        Subject::Scaling => "scaling, growth 2",
        Subject::ScalingBy4 => "scaling, growth 4",
        Subject::OneLayer => "scaling, one layer",
        Subject::Guava => "Guava",
        Subject::GuavaMitz32 => "Guava, MITZ_32",
        Subject::RedisBloom => "RedisBloom, one layer",
        Subject::RedisBloomLayers => "RedisBloom, two layers",
    }
}

/// Returns the fills that are written at the axis.
fn ticks(last: f64) -> Vec<f64> {
    match last > 200.0 {
        true => vec![1.0, 10.0, 100.0, 400.0, 1600.0, 6400.0],
        false => vec![1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0],
    }
}

fn decade(rate: f64) -> String {
    match rate > 1e-5 {
        true => rate.to_string(),
        false => format!("{rate:e}"),
    }
}

fn fill(percent: f64) -> String {
    match percent > 200.0 {
        true => format!("{}x", percent / 100.0),
        false => format!("{percent} %"),
    }
}

/// Draws the legend: the meaning of the lines and dots.
fn legend(area: &Area<'_>, all: &[Series]) -> Result<(), Box<dyn Error>> {
    const LEFT: i32 = 124;
    const STEP: i32 = 56;
    let mut middle = 136;
    let mut label = |label: &str| -> Result<i32, Box<dyn Error>> {
        middle += STEP;
        let style = text(30, HPos::Left).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(label.to_owned(), (LEFT + 120, middle), style))?;
        Ok(middle)
    };
    let across = |middle| [(LEFT, middle), (LEFT + 88, middle)];
    let down = |middle| [(LEFT + 44, middle - 20), (LEFT + 44, middle + 20)];

    let own = all
        .iter()
        .filter(|series| series.subject == Subject::Blocked);
    for (series, colour) in own.zip(COLOURS) {
        let middle = label(&format!(
            "predicted by the keys added, p = {}",
            series.asked
        ))?;
        area.draw(&PathElement::new(across(middle), colour.stroke_width(3)))?;
    }
    let middle = label("p, the rate asked for")?;
    area.draw(&DashedPathElement::new(
        across(middle),
        24,
        18,
        TEXT.stroke_width(2),
    ))?;
    let middle = label("measured")?;
    area.draw(&Circle::new((LEFT + 44, middle), 8, TEXT.filled()))?;
    let middle = label("99.9 % of what chance allows")?;
    area.draw(&PathElement::new(
        down(middle),
        TEXT.mix(0.35).stroke_width(14),
    ))?;
    let middle = label("the capacity")?;
    area.draw(&PathElement::new(
        down(middle),
        TEXT.mix(0.45).stroke_width(2),
    ))?;
    Ok(())
}

/// Adds a description for readers who cannot see the plot.
fn describe(svg: &str) -> String {
    let captions = Subject::ALL.map(caption).join("; ");
    let description = format!(
        "A panel for each kind: {captions}. In each the false-positive rate grows with the keys \
         added, for rates of 0.1, 0.01, 0.001 and 0.0001 asked for, and what is measured lies on \
         the line that is predicted. It is under the rate asked for up to the capacity, that of \
         filters that grow up to 64 times the capacity at first; of Guava and RedisBloom, which have \
         sizes of their own, some are above it."
    );
    svg.replacen(
        "<svg ",
        "<svg role=\"img\" aria-labelledby=\"title description\" ",
        1,
    )
    .replacen(
        ">\n",
        &format!(
            ">\n<title id=\"title\">{TITLE}</title>\n\
                 <desc id=\"description\">{description}</desc>\n"
        ),
        1,
    )
}
