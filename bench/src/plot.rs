//! Results as a picture: nanoseconds by row, one bar for each contender; of lists nanoseconds by size, one line for each.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use crate::record::Record;
use crate::report::{row_name, series};

/// Pixels of a picture of few rows.
const SIZE: (u32, u32) = (1200, 600);

/// Pixels that the name of a row takes at least.
const ROW_WIDTH: u32 = 150;

/// Pixels of a picture of one kind of list.
const COLUMN_WIDTH: u32 = 700;

/// Draws the results into the SVG file `path`: single lookups with random hits as bars, or of lists how uniform traffic
/// grows with the number of rules.
///
/// # Errors
/// Where the file cannot be written.
pub fn draw(records: &[Record], path: &Path) -> Result<(), Box<dyn Error>> {
    match records.iter().any(|record| record.suite == "classbench") {
        true => lines(records, path),
        false => bars(records, path),
    }
}

/// Nanoseconds over rules, both logarithmic: a picture for each kind of list, single lookups above batches.
fn lines(records: &[Record], path: &Path) -> Result<(), Box<dyn Error>> {
    let uniform = records.iter().filter(|record| record.traffic == "uniform");
    let shown: Vec<&Record> = uniform.collect();
    let (mut kinds, mut names) = (Vec::new(), Vec::new());
    for record in &shown {
        push_new(&mut kinds, kind(record).into());
        push_new(&mut names, series(&record.what, record));
    }
    let all = shown.iter().map(|record| f64::from(record.rules));
    let rules = all.clone().fold(1e6, f64::min)..all.fold(1.0, f64::max) * 1.01;
    let all = shown.iter().map(|record| record.ns);
    let ns = all.clone().fold(10.0, f64::min) * 0.8..all.fold(1.0, f64::max) * 1.5;
    let columns = kinds.len().max(1);
    let size = (COLUMN_WIDTH * columns as u32, 2 * SIZE.1);
    let area = SVGBackend::new(path, size).into_drawing_area();
    area.fill(&WHITE)?;
    let parts = area.split_evenly((2, columns));
    for (i, part) in parts.iter().enumerate() {
        let mode = ["single", "batch"][i / columns];
        let Some(here) = kinds.get(i % columns) else {
            continue;
        };
        let mut chart = ChartBuilder::on(part)
            .caption(
                format!("{here}: ns a lookup, uniform, {mode}"),
                ("sans-serif", 20),
            )
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(rules.clone().log_scale(), ns.clone().log_scale())?;
        chart.configure_mesh().x_desc("rules").draw()?;
        for (i, name) in names.iter().enumerate() {
            let color = Palette99::pick(i).to_rgba();
            let mut points: Vec<(f64, f64)> = Vec::new();
            for record in &shown {
                let is_here = record.mode == mode && kind(record) == here;
                let rules = f64::from(record.rules);
                // Where there are a given and a generated list of one size, the given one comes first.
                let is_new = points.iter().all(|point| point.0 != rules);
                if is_here && is_new && series(&record.what, record) == *name {
                    points.push((rules, record.ns));
                }
            }
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let dots = points
                .iter()
                .map(|&point| Circle::new(point, 3, color.filled()));
            chart.draw_series(dots)?;
            chart
                .draw_series(LineSeries::new(points, color))?
                .label(name)
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 5), (x + 10, y + 5)], color.filled())
                });
        }
        chart
            .configure_series_labels()
            .background_style(WHITE)
            .border_style(BLACK)
            .position(SeriesLabelPosition::UpperLeft)
            .draw()?;
    }
    area.present()?;
    Ok(())
}

/// The kind of a list: its name without the size, or without that it was generated.
fn kind(record: &Record) -> &str {
    match record.row.split_once('_') {
        Some((kind, rest)) if rest != "deep" => kind,
        _ => &record.row,
    }
}

/// Random hits, single lookups.
fn bars(records: &[Record], path: &Path) -> Result<(), Box<dyn Error>> {
    let shown: Vec<&Record> = records
        .iter()
        .filter(|record| record.traffic == "hits" && record.mode == "single")
        .collect();
    let (mut rows, mut names) = (Vec::new(), Vec::new());
    for record in &shown {
        push_new(&mut rows, row_name(record));
        push_new(&mut names, series(&record.what, record));
    }
    let highest = shown.iter().map(|record| record.ns).fold(1.0, f64::max);
    let lowest = shown.iter().map(|record| record.ns).fold(1.0, f64::min);

    let pixels = SIZE.0.max(ROW_WIDTH * rows.len() as u32);
    let area = SVGBackend::new(path, (pixels, SIZE.1)).into_drawing_area();
    area.fill(&WHITE)?;
    let suite = records.first().map_or("", |record| &*record.suite);
    let mut chart = ChartBuilder::on(&area)
        .caption(
            match suite {
                "build" => "build: ns to compile".into(),
                suite => format!("{suite}: ns a lookup, random hits, single"),
            },
            ("sans-serif", 20),
        )
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(
            0.0..rows.len().max(1) as f64,
            (lowest * 0.8..highest * 1.5).log_scale(),
        )?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * rows.len() + 1)
        // Labels stand in the middle of each row's bars.
        .x_label_formatter(&|x| match rows.get(*x as usize) {
            Some(row) if (x.fract() - 0.5).abs() < 0.01 => row.clone(),
            _ => String::new(),
        })
        .draw()?;
    let width = 0.8 / names.len().max(1) as f64;
    for (i, name) in names.iter().enumerate() {
        let color = Palette99::pick(i).to_rgba();
        let bars = shown
            .iter()
            .filter(|record| series(&record.what, record) == *name)
            .map(|record| {
                let place = rows
                    .iter()
                    .position(|other| *other == row_name(record))
                    .unwrap_or(0);
                let left = place as f64 + 0.1 + i as f64 * width;
                Rectangle::new(
                    [(left, lowest * 0.8), (left + width, record.ns)],
                    color.filled(),
                )
            });
        chart
            .draw_series(bars)?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], color.filled()));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE)
        .border_style(BLACK)
        .position(SeriesLabelPosition::UpperLeft)
        .draw()?;
    area.present()?;
    Ok(())
}

fn push_new(all: &mut Vec<String>, value: String) {
    if !all.contains(&value) {
        all.push(value);
    }
}
